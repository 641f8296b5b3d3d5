package bus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

const (
	reconnectWait   = 500 * time.Millisecond // between two rounds of all servers, and up to
	reconnectJitter = 500 * time.Millisecond // more
)

// errNewSeed ends the attempt in which a rotated seed is noticed; the next one uses it.
var errNewSeed = errors.New("the nkey seed is another one")

// options are those of the connection, without its handlers. Reasons: a publish that was reported as failed must not
// be sent later (no reconnect buffer); a half-open connection must be noticed soon; nothing gives up for good.
func (b *Bus) options() ([]nats.Option, error) {
	c := &b.cfg
	o := []nats.Option{
		nats.Name(c.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.IgnoreAuthErrorAbort(),
		nats.PermissionErrOnSubscribe(true),
	}
	if c.InboxPrefix != "" {
		o = append(o, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.Server != nil {
		o = append(o, nats.InProcessServer(c.Server))
		if user, password := c.Server.login(); user != "" {
			o = append(o, nats.UserInfo(user, password))
		}
		return o, nil
	}
	if c.CAFile != "" {
		o = append(o, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		o = append(o, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	who, err := b.identity()
	if err != nil {
		return nil, err
	}
	return append(o, who...), nil
}

// identity is how the client says who it is.
func (b *Bus) identity() ([]nats.Option, error) {
	c := &b.cfg
	switch {
	case c.CredsFile != "":
		if _, err := os.Stat(c.CredsFile); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		return []nats.Option{nats.UserCredentials(c.CredsFile)}, nil
	case c.NkeyFile != "":
		key, _, err := signed(c.NkeyFile, nil)
		if err != nil {
			return nil, err
		}
		return []nats.Option{nats.Nkey(key, b.sign)}, nil
	case c.PasswordFile != "":
		if _, err := password(c.PasswordFile); err != nil {
			return nil, err
		}
		return []nats.Option{nats.UserInfoHandler(func() (string, string) {
			text, err := password(c.PasswordFile)
			if err != nil {
				b.log.Warn("password of the bus not read", "err", err)
			}
			return c.User, text
		})}, nil
	case c.User != "" || c.Password != "":
		return []nats.Option{nats.UserInfo(c.User, c.Password)}, nil
	default:
		return nil, nil
	}
}

func password(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// sign answers the server's challenge. The library keeps the public key that it was given at first; it calls this with
// its connection locked, by the goroutine that connects, just after it has read that key.
func (b *Bus) sign(nonce []byte) ([]byte, error) {
	key, signature, err := signed(b.cfg.NkeyFile, nonce)
	if err != nil {
		return nil, err
	}
	if nc := b.live.Load(); nc != nil && nc.Opts.Nkey != key {
		nc.Opts.Nkey = key
		return nil, errNewSeed
	}
	return signature, nil
}

// signed gives the public key of a seed, and the signature of nonce.
func signed(file string, nonce []byte) (key string, signature []byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", nil, fmt.Errorf("read nkey seed: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(text)
	clear(text)
	if err != nil {
		return "", nil, fmt.Errorf("read nkey seed %s: %w", file, err)
	}
	defer pair.Wipe()
	if key, err = pair.PublicKey(); err != nil {
		return "", nil, fmt.Errorf("read nkey seed %s: %w", file, err)
	}
	if !nkeys.IsValidPublicUserKey(key) {
		return "", nil, fmt.Errorf("read nkey seed %s: not that of a user", file)
	}
	if signature, err = pair.Sign(nonce); err != nil {
		return "", nil, fmt.Errorf("sign with nkey seed %s: %w", file, err)
	}
	return key, signature, nil
}

// pause is how long to wait before the next round of all servers. The library asks here after each round; what ended
// one behind the greeting of a server (TLS, a wrong password) it reports nowhere else while no connection stood yet.
func (b *Bus) pause(int) time.Duration {
	if nc := b.live.Load(); nc != nil {
		if err := nc.LastError(); err != nil {
			b.trouble(err)
		}
	}
	return reconnectWait + rand.N(reconnectJitter)
}
