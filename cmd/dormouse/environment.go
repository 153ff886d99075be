//go:build !windows

package main

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dormouse-run/dormouse/internal/crash"
)

// surroundings is what a server needs from its environment after it has cleared it.
type surroundings struct {
	path     string   // where programs are
	packages []string // for package managers
}

// leaveEnvironment copies what is needed from the environment and clears the rest, so that
// no process which is started from now on inherits a key or a password. Libraries that read
// the environment once and cache it are made to do so first. (The /proc entry of this process
// itself stays as it was, for its own user and root.)
func leaveEnvironment(c config) surroundings {
	s := surroundings{path: os.Getenv("PATH"), packages: forPackages(os.Environ())}
	if !ownProcess {
		return s
	}
	_, _ = http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "http", Host: "proxy.invalid"}})
	_ = time.Now().Local().String()
	if os.Getenv("SSL_CERT_FILE")+os.Getenv("SSL_CERT_DIR") != "" {
		_, _ = x509.SystemCertPool()
	}
	kept := neededNames(c)
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		forTests := crash.Enabled && strings.HasPrefix(name, environment) && !holdsSecret(name)
		if !slices.Contains(kept, name) && !forTests {
			_ = os.Unsetenv(name)
		}
	}
	return s
}

// holdsSecret reports whether a variable of ours may have a password in it.
func holdsSecret(name string) bool {
	return slices.ContainsFunc(mayHoldSecrets, func(flag string) bool {
		return name == environment+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	}) || name == "DORMOUSE_TOKEN"
}

// neededNames are the variables that stay, since libraries read them again and again. They
// hold paths and names, never secrets. PATH and the like stay only if there are credentials
// of a registry or a bucket in files.
func neededNames(c config) []string {
	kept := []string{"GODEBUG", "GOCOVERDIR"}
	if hasRegistryKeys() {
		kept = append(kept, "PATH", "HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
	}
	if c.Blobs.URL != "" && os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
		kept = append(kept, "PATH", "HOME", "AWS_PROFILE", "AWS_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN",
			"AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	}
	return kept
}

// hasRegistryKeys reports whether this user has a file of registry credentials, where the
// library that reads it looks.
func hasRegistryKeys() bool {
	home, _ := os.UserHomeDir()
	for _, name := range []string{
		filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), filepath.Join(home, ".docker", "config.json"), os.Getenv("REGISTRY_AUTH_FILE"),
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containers", "auth.json"),
		filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "containers", "auth.json"), filepath.Join(home, ".config", "containers", "auth.json"),
	} {
		if _, err := os.Stat(name); err == nil && filepath.IsAbs(name) { //nolint:gosec // the operator says where
			return true
		}
	}
	return false
}

// credentials are those in a URL, and settings that are named for them.
var credentials = regexp.MustCompile(`(?i)://[^/\s]*@|^[^=]*(AUTH|TOKEN|PASSWORD)[^=]*=`)

// forPackages are the variables that package managers have of their own, and what any
// program needs to be found and to find its settings.
func forPackages(env []string) (chosen []string) {
	for _, e := range env {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		switch {
		case slices.Contains([]string{"PATH", "HOME", "USER", "TMPDIR", "LANG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "GOPROXY", "GOSUMDB", "GOENV", "GOPRIVATE", "GOFLAGS", "GOROOT", "GOTOOLCHAIN", "GEMRC"}, name),
			strings.HasPrefix(name, "PIP_"), strings.HasPrefix(name, "NPM_CONFIG_"):
			if !credentials.MatchString(e) { // no process that we start is given a password
				chosen = append(chosen, e)
			}
		}
	}
	return chosen
}
