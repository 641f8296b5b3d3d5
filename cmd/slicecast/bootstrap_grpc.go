package main

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

func bootstrapGRPCCommand() *cobra.Command {
	var c bootstrapConfig
	cmd := &cobra.Command{
		Use:   "grpc",
		Short: "Print a bootstrap of a gRPC client without proxy that dials xds:///<service>.<namespace>:<port>",
		Long: "Print a bootstrap of a gRPC client without proxy that dials xds:///<service>.<namespace>:<port>.\n" +
			"Write it to a file and name that in the environment variable GRPC_XDS_BOOTSTRAP of the client.\n" +
			"With several xDS replicas, --xds should be one name that resolves to all of them, such as that of a headless Service:\n" +
			"gRPC goes on to the next --xds only while it lacks a resource, and stays with what it has when the first one is gone.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.grpc()
			if err != nil {
				return err
			}
			if len(c.xds) > 1 {
				cmd.PrintErrln("slicecast: gRPC leaves the first --xds only while it lacks a resource; better one name that resolves to all replicas")
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.add(cmd.Flags())
	return cmd
}

// grpc is the bootstrap of a gRPC client. A client that lacks a resource asks the first replica that answers; one that has
// them all stays with the first (gRFC A71).
func (c bootstrapConfig) grpc() ([]byte, error) {
	if c.tls.serverName != "" {
		return nil, usagef("--tls-server-name is for Envoy: gRPC checks the certificate against the host of --xds")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	node, err := c.place()
	if err != nil {
		return nil, err
	}
	servers := make([]tree, 0, len(c.xds))
	for _, hostport := range c.xds {
		servers = append(servers, tree{
			"server_uri": hostport, "server_features": []string{"xds_v3"}, "channel_creds": []tree{c.tls.grpc()},
		})
	}
	text, err := json.MarshalIndent(tree{"xds_servers": servers, "node": node}, "", "  ")
	return append(text, '\n'), err
}

// grpc are the credentials of a gRPC client. It checks the certificate against the host that it dials.
func (t bootstrapTLS) grpc() tree {
	if t.ca == "" {
		return tree{"type": "insecure"}
	}
	config := tree{"ca_certificate_file": t.ca, "refresh_interval": "60s"}
	if t.cert != "" {
		config["certificate_file"], config["private_key_file"] = t.cert, t.key
	}
	return tree{"type": "tls", "config": config}
}
