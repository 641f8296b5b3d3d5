// Pure: a file of manifests becomes EndpointSlice objects, or an error that names the file and the line.

package watcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// document is one document of a file, as JSON.
type document struct {
	line int    // where it begins in the file, from 1
	text []byte // as it is in the file
	json []byte
}

// header is what says what an object is.
type header struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

const (
	sliceKind = "EndpointSlice"
	sliceAPI  = "discovery.k8s.io/v1"
	// placeholder is the resourceVersion of manifests: theirs is ignored.
	placeholder = "1"
)

// parseManifest reads the EndpointSlices of a file: YAML documents or JSON texts, each an EndpointSlice, an
// EndpointSliceList or a List of EndpointSlices. Anything else in it, an unknown field, or an endpoint or port that
// Translate would refuse makes the whole file an error, "name:line: why", so that a slip of the pen removes nothing.
// A file without any object is an error too; an empty list is not. uid and resourceVersion are ignored, a missing
// namespace is "default".
func parseManifest(name string, data []byte) ([]*discoveryv1.EndpointSlice, error) {
	split := splitYAML
	if strings.HasSuffix(name, ".json") {
		split = splitJSON
	}
	docs, line, err := split(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s:1: the file holds no object", name)
	}
	var out []*discoveryv1.EndpointSlice
	seen := map[object]bool{}
	for _, d := range docs {
		found, err := d.slices()
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, d.lineOf(err), err)
		}
		for _, es := range found {
			id := object{es.Namespace, es.Name}
			if seen[id] {
				return nil, fmt.Errorf("%s:%d: EndpointSlice %s/%s is defined twice", name, d.line, clip(es.Namespace), clip(es.Name))
			}
			seen[id] = true
			out = append(out, es)
		}
	}
	return out, nil
}

// slices gives the EndpointSlices of a document.
func (d document) slices() ([]*discoveryv1.EndpointSlice, error) {
	var h header
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &h); err != nil {
		return nil, err
	}
	switch {
	case h.APIVersion == sliceAPI && h.Kind == sliceKind:
		es, err := decodeSlice(d.json)
		return []*discoveryv1.EndpointSlice{es}, err
	case h.APIVersion == sliceAPI && h.Kind == sliceKind+"List", h.APIVersion == "v1" && h.Kind == "List":
	default:
		return nil, fmt.Errorf("apiVersion %q, kind %q is not %s %s or a list of it", clip(h.APIVersion), clip(h.Kind), sliceAPI, sliceKind)
	}
	out := make([]*discoveryv1.EndpointSlice, 0, len(h.Items))
	for i, raw := range h.Items {
		var item header
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		untyped := item.APIVersion == "" && item.Kind == "" && h.Kind != "List"
		if !untyped && (item.APIVersion != sliceAPI || item.Kind != sliceKind) {
			return nil, fmt.Errorf("item %d: apiVersion %q, kind %q is not %s %s", i, clip(item.APIVersion), clip(item.Kind), sliceAPI, sliceKind)
		}
		es, err := decodeSlice(raw)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, es)
	}
	return out, nil
}

func decodeSlice(raw []byte) (*discoveryv1.EndpointSlice, error) {
	es := &discoveryv1.EndpointSlice{}
	strict, err := kjson.UnmarshalStrict(raw, es)
	if err != nil {
		return nil, err
	}
	if len(strict) > 0 {
		return nil, strict[0]
	}
	if es.Namespace == "" {
		es.Namespace = "default"
	}
	if es.Name == "" {
		return nil, errors.New("EndpointSlice without metadata.name")
	}
	es.UID, es.ResourceVersion = "", placeholder
	if _, skips, _ := Translate("cluster", 1, es); skips.Refused != "" {
		return nil, fmt.Errorf("EndpointSlice %s/%s: %s", clip(es.Namespace), clip(es.Name), skips.Refused)
	}
	return es, nil
}

// splitYAML cuts a file at its document separators and turns each document into JSON.
func splitYAML(data []byte) (docs []document, line int, err error) {
	start, first := 0, 1
	add := func(text []byte) error {
		if isBlank(text) {
			return nil
		}
		js, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			line = first + max(0, yamlLine(err)-1)
			return cleanYAML(err)
		}
		docs = append(docs, document{first, text, js})
		return nil
	}
	n := 0
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		n++
		cut, bare := separator(data[at:end])
		if cut && !bare {
			return nil, n, errors.New("content on the line of a document separator")
		}
		if cut {
			if err := add(data[start:at]); err != nil {
				return nil, line, err
			}
			start, first = end, n+1
		}
		at = end
	}
	if err := add(data[start:]); err != nil {
		return nil, line, err
	}
	for i := range docs {
		docs[i].skipBlank()
	}
	return docs, 0, nil
}

// skipBlank moves the beginning of a document to its first line that says something.
func (d *document) skipBlank() {
	for {
		i := bytes.IndexByte(d.text, '\n')
		if i < 0 || !isBlank(d.text[:i]) {
			return
		}
		d.text = d.text[i+1:]
		d.line++
	}
}

// separator reports whether a line ends a document, and whether there is nothing else on it.
func separator(line []byte) (cut, bare bool) {
	for _, mark := range [...]string{"---", "..."} {
		rest, ok := bytes.CutPrefix(line, []byte(mark))
		if ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			return true, isBlank(rest)
		}
	}
	return false, false
}

// isBlank reports whether text holds nothing but space and comments.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// splitJSON cuts a file into its JSON texts.
func splitJSON(data []byte) (docs []document, line int, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		at := dec.InputOffset()
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return docs, 0, nil
		case err != nil:
			offset := dec.InputOffset()
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				offset = syntax.Offset
			}
			return nil, lineAt(data, offset), err
		}
		for at < int64(len(data)) && strings.IndexByte(" \t\r\n", data[at]) >= 0 {
			at++
		}
		docs = append(docs, document{lineAt(data, at), raw, raw})
	}
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

var (
	lineInYAML = regexp.MustCompile(`line (\d+)`)
	fieldInErr = regexp.MustCompile(`(?:field "([^"]+)"|Go struct field [^ ]*?([A-Za-z]+) of type)`)
)

// yamlLine finds the line that an error of the YAML parser names, 0 when it names none.
func yamlLine(err error) int {
	m := lineInYAML.FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// cleanYAML makes one line of an error of the YAML parser, without its own line number, which counts from the document.
func cleanYAML(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "error converting YAML to JSON: ")
	return errors.New(regexp.MustCompile(`line \d+: `).ReplaceAllString(text, ""))
}

// lineOf finds the line of a document that an error speaks of: where the field that it names occurs, if that is
// only one place, else where the document begins.
func (d document) lineOf(err error) int {
	m := fieldInErr.FindStringSubmatch(err.Error())
	if m == nil {
		return d.line
	}
	field := m[1] + m[2]
	if i := strings.LastIndexByte(field, '.'); i >= 0 {
		field = field[i+1:]
	}
	field, _, _ = strings.Cut(field, "[")
	at, found := d.line, 0
	n := 0
	for line := range bytes.Lines(d.text) {
		if bytes.Contains(line, []byte(field+":")) || bytes.Contains(line, []byte(`"`+field+`"`)) {
			at = d.line + n
			found++
		}
		n++
	}
	if found != 1 {
		return d.line
	}
	return at
}
