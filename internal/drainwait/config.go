package drainwait

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is what a wait needs. Flags fills it with its defaults.
type Config struct {
	URLs         []string      // of drain gates, tried in turn
	Cluster      string        // may be empty while the bus knows one cluster
	Namespace    string        // of the pod
	Pod          string        // name of the pod
	UID          string        // of the pod; UID or IPs is required
	IPs          []netip.Addr  // of the pod; empty takes connections to any local address
	Ports        []uint16      // target ports, added to those that the answer names
	Timeout      time.Duration // bounds all steps together
	Linger       time.Duration // bounds the wait for connections
	Idle         time.Duration // a connection with nothing pending that carried no byte for so long is done
	Grace        time.Duration // the pod's grace period
	Reserve      time.Duration // what is left of Grace for the app
	IgnoreSilent time.Duration // leave out proxies that owe an acknowledgement for so long; 0 leaves out none
	FallbackWait time.Duration // how long the last endpoint waits for a successor; below 0 as the gate has it

	// Table reads the kernel's TCP connections with one of the local ports; nil means the real one.
	Table func(ports []uint16) ([]Conn, error)
}

// Flags adds the flags of c to fs, and sets c to their defaults.
func (c *Config) Flags(fs *flag.FlagSet) {
	*c = Config{URLs: []string{"http://127.0.0.1:18081"}}
	fs.Var(urlsValue{&c.URLs}, "url", "drain gates, tried in turn, joined by commas")
	fs.StringVar(&c.Cluster, "cluster", "", "cluster of the pod; may be left out while the bus knows only one")
	fs.StringVar(&c.Namespace, "namespace", "", "namespace of the pod (default $POD_NAMESPACE)")
	fs.StringVar(&c.Pod, "pod", "", "name of the pod (default $POD_NAME)")
	fs.StringVar(&c.UID, "uid", "", "uid of the pod (default $POD_UID)")
	fs.Var(addrsValue{&c.IPs}, "ip", "addresses of the pod, joined by commas (default $POD_IPS, $POD_IP)")
	fs.Var(portsValue{&c.Ports}, "port", "target `port` of a service, repeatable; added to those that the gate names")
	fs.DurationVar(&c.Timeout, "timeout", 15*time.Second, "bound of all steps together")
	fs.DurationVar(&c.Linger, "linger", 5*time.Second, "bound of the wait for connections, inside of --timeout")
	fs.DurationVar(&c.Idle, "idle", time.Second, "a connection with nothing pending and without a byte for so long is done")
	fs.DurationVar(&c.Grace, "grace", 30*time.Second, "the pod's terminationGracePeriodSeconds")
	fs.DurationVar(&c.Reserve, "reserve", 10*time.Second, "what of --grace is left for the app")
	fs.DurationVar(&c.IgnoreSilent, "ignore-silent", 0, "leave out proxies that owe an acknowledgement for so long; 0 leaves out none")
	fs.DurationVar(&c.FallbackWait, "fallback-wait", -1, "how long the last endpoint waits for a successor; below 0 as the gate has it")
}

// Complete fills what is empty from the names that pods use for the downward API.
func (c *Config) Complete(lookup func(string) (string, bool)) error {
	get := func(name string) string { v, _ := lookup(name); return v }
	c.Namespace = cmp.Or(c.Namespace, get("POD_NAMESPACE"))
	c.Pod = cmp.Or(c.Pod, get("POD_NAME"))
	c.UID = cmp.Or(c.UID, get("POD_UID"))
	for _, name := range []string{"POD_IPS", "POD_IP"} {
		if len(c.IPs) > 0 {
			break
		}
		if err := (addrsValue{&c.IPs}).Set(get(name)); err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
	}
	return nil
}

// validate returns an error that names the first setting that cannot be.
func (c *Config) validate() error {
	if len(c.URLs) == 0 {
		return errors.New("--url: no drain gate is named")
	}
	for _, text := range c.URLs {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("--url: %q is not an http:// or https:// address", text)
		}
	}
	if c.UID == "" && len(c.IPs) == 0 {
		return errors.New("--uid and --ip are missing: set POD_UID and POD_IP by the downward API")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"timeout", c.Timeout}, {"linger", c.Linger}, {"idle", c.Idle}, {"grace", c.Grace},
		{"reserve", c.Reserve}, {"ignore-silent", c.IgnoreSilent},
	} {
		if d.value < 0 {
			return fmt.Errorf("--%s: %s is below 0", d.name, d.value)
		}
	}
	return nil
}

// budget gives how long all may take, and whether that is less than was asked.
func (c *Config) budget() (budget time.Duration, cut bool) {
	most := max(c.Grace-c.Reserve, 0)
	return min(c.Timeout, most), c.Timeout > most
}

// fields splits a list at commas and spaces.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// urlsValue is a list as a flag: given, it replaces the default.
type urlsValue struct{ list *[]string }

func (v urlsValue) String() string {
	if v.list == nil {
		return ""
	}
	return strings.Join(*v.list, ",")
}

func (v urlsValue) Set(text string) error {
	*v.list = fields(text)
	return nil
}

type addrsValue struct{ list *[]netip.Addr }

func (v addrsValue) String() string {
	if v.list == nil {
		return ""
	}
	texts := make([]string, 0, len(*v.list))
	for _, a := range *v.list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

func (v addrsValue) Set(text string) error {
	*v.list = nil
	for _, item := range fields(text) {
		a, err := netip.ParseAddr(item)
		if err != nil {
			return fmt.Errorf("%q is not an address", item)
		}
		if a = a.Unmap().WithZone(""); !slices.Contains(*v.list, a) {
			*v.list = append(*v.list, a)
		}
	}
	return nil
}

// portsValue adds to its list at every use.
type portsValue struct{ list *[]uint16 }

func (v portsValue) String() string {
	if v.list == nil {
		return ""
	}
	texts := make([]string, 0, len(*v.list))
	for _, p := range *v.list {
		texts = append(texts, strconv.Itoa(int(p)))
	}
	return strings.Join(texts, ",")
}

func (v portsValue) Set(text string) error {
	for _, item := range fields(text) {
		p, err := strconv.ParseUint(item, 10, 16)
		if err != nil || p == 0 {
			return fmt.Errorf("%q is not a port", item)
		}
		if !slices.Contains(*v.list, uint16(p)) {
			*v.list = append(*v.list, uint16(p))
		}
	}
	return nil
}
