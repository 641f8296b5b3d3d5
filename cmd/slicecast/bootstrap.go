package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// bootstrapConfig is what a client must know to ask slicecast.
type bootstrapConfig struct {
	nodeID   string
	cluster  string // Kubernetes cluster of the client, "" for none
	region   string
	zone     string
	node     string // Kubernetes node of the client
	ipFamily string
	xds      []string // host:port of the xDS replicas
	tls      bootstrapTLS
}

// bootstrapTLS is how a client reaches the xDS server over TLS.
type bootstrapTLS struct {
	ca         string // PEM file of the server's authorities, "" for plaintext
	cert, key  string // PEM files of the client, both or none
	serverName string // name in the server's certificate; "" for the host of the first replica
}

func (c *bootstrapConfig) add(f *pflag.FlagSet) {
	f.StringVar(&c.nodeID, "node-id", "", "id of the client, unique among all clients (default: the host name and a random part)")
	f.StringVar(&c.cluster, "node-cluster", "", "Kubernetes cluster that the client is in; its endpoints come first (default: none)")
	f.StringVar(&c.region, "node-region", "", "region of the client")
	f.StringVar(&c.zone, "node-zone", "", "zone of the client")
	f.StringVar(&c.node, "node-name", "", "Kubernetes node of the client, for topology hints by node")
	f.StringVar(&c.ipFamily, "ip-family", "", "ipv4 or ipv6, to get addresses of that family only")
	f.StringArrayVar(&c.xds, "xds", []string{"127.0.0.1:18000"}, "HOST:PORT of an xDS replica (repeatable)")
	f.StringVar(&c.tls.ca, "tls-ca", "", "PEM file with the authorities of the xDS server's certificate (default: plaintext)")
	f.StringVar(&c.tls.cert, "tls-cert", "", "PEM file with the client's certificate")
	f.StringVar(&c.tls.key, "tls-key", "", "PEM file with its key")
	f.StringVar(&c.tls.serverName, "tls-server-name", "", "DNS name, IP address or SPIFFE ID in the xDS server's certificate (Envoy only; default: the host of the first --xds)")
}

// check says what is wrong, and fills the name of the server.
func (c *bootstrapConfig) check() error {
	if len(c.xds) == 0 {
		return usagef("--xds is needed")
	}
	for _, hostport := range c.xds {
		if _, err := socketAddress("xds", hostport); err != nil {
			return err
		}
	}
	switch t := c.tls; {
	case (t.cert == "") != (t.key == ""):
		return usagef("--tls-cert and --tls-key belong together")
	case t.ca == "" && (t.cert != "" || t.serverName != ""):
		return usagef("--tls-ca is needed for TLS")
	}
	if c.tls.serverName == "" {
		c.tls.serverName, _, _ = net.SplitHostPort(c.xds[0])
	}
	return nil
}

func bootstrapCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bootstrap", Short: "Print a working bootstrap for a client", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(bootstrapEnvoyCommand(), bootstrapGRPCCommand())
	return cmd
}

// tree is one object of a bootstrap.
type tree map[string]any

// place says who and where the client is, in the words of both kinds of clients.
func (c bootstrapConfig) place() (tree, error) {
	switch c.ipFamily {
	case "", "ipv4", "ipv6":
	default:
		return nil, usagef("--ip-family %q is neither ipv4 nor ipv6", c.ipFamily)
	}
	id := c.nodeID
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("make a node id: %w", err)
		}
		random := make([]byte, 4)
		_, _ = rand.Read(random) // never fails
		id = host + "-" + hex.EncodeToString(random)
	}
	metadata := tree{}
	for key, value := range map[string]string{"cluster": c.cluster, "ip-family": c.ipFamily, "node": c.node} {
		if value != "" {
			metadata["slicecast.io/"+key] = value
		}
	}
	return tree{
		"id": id, "cluster": "slicecast-client", "metadata": metadata,
		"locality": tree{"region": c.region, "zone": c.zone},
	}, nil
}

func socketAddress(flag, hostport string) (tree, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, usagef("--%s %q: %w", flag, hostport, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return nil, usagef("--%s %q is not HOST:PORT", flag, hostport)
	}
	return tree{"socket_address": tree{"address": host, "port_value": number}}, nil
}
