package endpointtest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slicecast/slicecast/internal/endpoint"
)

// escape writes text as one word without any byte that means something in a trace.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape reads what escape wrote.
func unescape(word string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			b.WriteByte(word[i])
			continue
		}
		if i+2 >= len(word) {
			return "", fmt.Errorf("%q ends within an escape", word)
		}
		c, err := strconv.ParseUint(word[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("escape in %q: %w", word, err)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}

// list writes a comma-joined list (hints) as a+b.
func list(items string) string {
	parts := strings.Split(items, ",")
	for i := range parts {
		parts[i] = escape(parts[i])
	}
	return strings.Join(parts, "+")
}

// unlist reads what list wrote.
func unlist(word string) (string, error) {
	parts := strings.Split(word, "+")
	for i := range parts {
		text, err := unescape(parts[i])
		if err != nil {
			return "", err
		}
		if strings.Contains(text, ",") {
			return "", fmt.Errorf("item %q of a list holds a comma", text)
		}
		parts[i] = text
	}
	return strings.Join(parts, ","), nil
}

// version writes [GENERATION/]RESOURCE.
func version(v endpoint.Version) string {
	if v.Generation == 1 {
		return strconv.FormatUint(v.Resource, 10)
	}
	return v.String()
}

// parseVersion reads what version wrote.
func parseVersion(word string) (endpoint.Version, error) {
	if !strings.Contains(word, "/") {
		word = "1/" + word
	}
	return endpoint.ParseVersion(word)
}

// ports writes NAME:NUMBER[/APP][,...], or "-".
func ports(all []endpoint.Port) string {
	if len(all) == 0 {
		return "-"
	}
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = p.Name + ":" + strconv.Itoa(int(p.Number))
		if p.AppProtocol != "" {
			words[i] += "/" + escape(p.AppProtocol)
		}
	}
	return strings.Join(words, ",")
}

// parsePorts reads what ports wrote.
func parsePorts(word string) ([]endpoint.Port, error) {
	if word == "-" {
		return nil, nil
	}
	var all []endpoint.Port
	for part := range strings.SplitSeq(word, ",") {
		name, rest, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("port %q is not NAME:NUMBER", part)
		}
		number, app, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("port %q: %w", part, err)
		}
		p := endpoint.Port{Name: name, Number: uint16(n)}
		if p.AppProtocol, err = unescape(app); err != nil {
			return nil, fmt.Errorf("port %q: %w", part, err)
		}
		all = append(all, p)
	}
	return all, nil
}
