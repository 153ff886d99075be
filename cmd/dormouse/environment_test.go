package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// left is what a process has once it has left its environment.
type left struct {
	Environment []string // as any process that it starts is given
	Packages    []string // as package managers are given
	Proxy       string   // what requests to the world go through
	Trusts      bool     // whether the authority of the test is trusted
	User        string   // the user name for a registry
}

// leaving tells a process, in its environment, to clear its environment, and which
// certificates it would trust before.
const leaving = "TEST_LEAVES_ITS_ENVIRONMENT"

// TestProcessThatLeavesItsEnvironment is that process. What it reads is remembered by
// libraries for as long as it lives, so that it is one of its own.
func TestProcessThatLeavesItsEnvironment(t *testing.T) {
	authority := os.Getenv(leaving)
	if authority == "" {
		t.Skip("it is started by other tests")
	}
	raw, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	ownProcess = true
	s := leaveEnvironment(config{})
	is := left{Environment: os.Environ(), Packages: s.packages}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://packages.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	if via, err := http.ProxyFromEnvironment(r); err == nil && via != nil {
		is.Proxy = via.String()
	}
	_, err = cert.Verify(x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	is.Trusts = err == nil
	registry, err := name.NewRegistry("registry.example")
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := authn.DefaultKeychain.Resolve(registry); err == nil {
		if who, err := keys.Authorization(); err == nil {
			is.User = who.Username
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(is); err != nil {
		t.Fatal(err)
	}
}

// leave starts a process with an environment and says what is left of that.
func leave(t *testing.T, authority string, env ...string) (is left) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestProcessThatLeavesItsEnvironment$", "-test.count=1")
	cmd.Env = append(env, leaving+"="+authority)
	out, err := cmd.CombinedOutput()
	line, _, _ := bytes.Cut(out, []byte("\n"))
	if err == nil {
		err = json.Unmarshal(line, &is)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return is
}

// newAuthority writes the certificate of an authority that only a test knows.
func newAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A server that has cleared its environment still uses the proxy and the certificates
// that its operator set there, and passes neither to what it starts.
func TestProxyAndCertificatesOutlastTheEnvironment(t *testing.T) {
	authority := newAuthority(t)
	const via = "http://user:canary@proxy.example:3128"
	is := leave(t, authority, "HTTP_PROXY="+via, "SSL_CERT_FILE="+authority, "ANTHROPIC_API_KEY=canary", "HOME="+t.TempDir(), "PATH=/bin")
	if is.Proxy != via {
		t.Errorf("the proxy is %q", is.Proxy)
	}
	if !is.Trusts {
		t.Error("the authority is forgotten")
	}
	if len(is.Environment) > 0 {
		t.Errorf("what is started is given %q", is.Environment)
	}
	if is := leave(t, authority, "HOME="+t.TempDir()); is.Trusts || is.Proxy != "" {
		t.Errorf("without them: %+v", is)
	}
}

// The server finds what a person has logged in with where podman and docker store it,
// even though it has cleared its environment, and passes the value to no other
// process.
func TestRegistriesKnowTheServerByPodmansCredentials(t *testing.T) {
	authority := newAuthority(t)
	const keys = `{"auths":{"registry.example":{"auth":"cG9kbWFuOmNhbmFyeQ=="}}}` // podman:canary
	for what, c := range map[string]struct {
		file string
		env  []string // with $ for the directory
	}{
		"named":               {"keys.json", []string{"REGISTRY_AUTH_FILE=$/keys.json"}},
		"of the session":      {"containers/auth.json", []string{"XDG_RUNTIME_DIR=$"}},
		"of the settings":     {"containers/auth.json", []string{"XDG_CONFIG_HOME=$"}},
		"of the home":         {".config/containers/auth.json", []string{"HOME=$", "XDG_CONFIG_HOME=$/.config"}},
		"docker's":            {".docker/config.json", []string{"HOME=$"}},
		"docker's, elsewhere": {"config.json", []string{"DOCKER_CONFIG=$"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(keys), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=canary"}
			for _, e := range c.env {
				env = append(env, strings.ReplaceAll(e, "$", dir))
			}
			is := leave(t, authority, env...)
			if is.User != "podman" {
				t.Errorf("to the registry it is %q", is.User)
			}
			if all := strings.Join(is.Environment, "\n"); strings.Contains(all, "canary") || strings.Contains(all, leaving) {
				t.Errorf("what is started is given %q", all)
			}
		})
	}
}

func TestPackageManagersAreGivenNoCredentials(t *testing.T) {
	env := []string{
		"PATH=/bin", "HOME=/root", "GOPROXY=https://proxy.example,direct", "PIP_INDEX_URL=https://pypi.example/simple", "npm_config_registry=https://npm.example",
		"GOFLAGS=-mod=mod", "PIP_EXTRA_INDEX_URL=https://user:canary@pypi.example/simple", "NPM_CONFIG_REGISTRY=https://canary@npm.example/",
		"NPM_CONFIG__AUTH=canary", "NPM_CONFIG_//npm.example/:_authToken=canary", "npm_config_password=canary", "PIP_TOKEN=canary",
		"GOPROXY=https://user:canary@proxy.example", "ANTHROPIC_API_KEY=canary", "AWS_SECRET_ACCESS_KEY=canary", "DORMOUSE_STORE=postgres://u:canary@h/d",
		"GOAUTH=canary", "PIPELINE=canary",
	}
	want := []string{"PATH=/bin", "HOME=/root", "GOPROXY=https://proxy.example,direct", "PIP_INDEX_URL=https://pypi.example/simple", "npm_config_registry=https://npm.example", "GOFLAGS=-mod=mod"}
	if got := forPackages(env); !slices.Equal(got, want) {
		t.Errorf("they are given %q", got)
	}
}
