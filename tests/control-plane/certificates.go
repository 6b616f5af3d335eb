package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates writes what one API server needs into a folder: an authority, a serving certificate for loopback, and
// the key that signs service account tokens.
func certificates(folder string) error {
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "control-plane"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	root, err := key(folder, "ca")
	if err != nil {
		return err
	}
	leaf, err := key(folder, "apiserver")
	if err != nil {
		return err
	}
	if _, err := key(folder, "accounts"); err != nil {
		return err
	}
	if err := sign(folder, "ca", authority, authority, root, root); err != nil {
		return err
	}
	return sign(folder, "apiserver", serving, authority, leaf, root)
}

func key(folder, name string) (*ecdsa.PrivateKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	bytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, err
	}
	return private, write(folder, name+".key", "EC PRIVATE KEY", bytes)
}

func sign(folder, name string, subject, issuer *x509.Certificate, of, by *ecdsa.PrivateKey) error {
	bytes, err := x509.CreateCertificate(rand.Reader, subject, issuer, &of.PublicKey, by)
	if err != nil {
		return err
	}
	return write(folder, name+".crt", "CERTIFICATE", bytes)
}

func write(folder, name, kind string, bytes []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	return os.WriteFile(filepath.Join(folder, name), text, 0o600)
}
