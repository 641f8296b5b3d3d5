package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files that up makes in its folder, beside NAME.log and NAME.pid of each child.
const (
	certFile       = "apiserver.crt" // self-signed, so it is its own certificate authority
	keyFile        = "apiserver.key"
	tokenFile      = "token"      // the administrator's bearer token
	tokensFile     = "tokens.csv" // the same, as kube-apiserver reads it
	accountKeyFile = "service-account.key"
	kubeconfigFile = "kubeconfig"
)

const validity = 365 * 24 * time.Hour

// writeSecrets makes keys, certificate and token in dir. What is there already is kept, so
// that a control plane started again in the same folder knows its clients.
func writeSecrets(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, kubeconfigFile)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for %s: %w", kubeconfigFile, err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	certPEM, err := newCertificate(key)
	if err != nil {
		return err
	}
	_, accountPEM, err := newKey()
	if err != nil {
		return err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make token: %w", err)
	}
	token := hex.EncodeToString(secret)
	for name, content := range map[string][]byte{
		certFile:       certPEM,
		keyFile:        keyPEM,
		accountKeyFile: accountPEM,
		tokenFile:      []byte(token),
		tokensFile:     []byte(token + ",admin,admin,system:masters\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("write secrets: %w", err)
		}
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func newCertificate(key *ecdsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	template := x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: apiserverName},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// writeKubeconfig writes the administrator's kubeconfig for the API server at url; it needs
// no other file, so it may be copied elsewhere.
func writeKubeconfig(dir, url string) error {
	cert, err := os.ReadFile(filepath.Join(dir, certFile))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	token, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: cert}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: string(token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin"}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, filepath.Join(dir, kubeconfigFile)); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
