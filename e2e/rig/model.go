package rig

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/dormouse-run/dormouse/model/scripted"
)

// Models is the provider, outside every server under test. It keeps an account
// for each tag it finds in a conversation, so that many sessions can share it.
type Models struct {
	listener net.Listener
	http     *http.Server

	mu       sync.Mutex
	accounts map[string]*scripted.Server // guarded by mu
}

// Tag marks a prompt as belonging to an account.
func Tag(name string) string { return "<<" + name + ">>" }

var tagged = regexp.MustCompile(`(?:<<|\\u003c\\u003c)([a-zA-Z0-9_.-]+)(?:>>|\\u003e\\u003e)`)

// NewModels starts a provider.
func NewModels() (*Models, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Models{listener: l, accounts: make(map[string]*scripted.Server)}
	m.http = &http.Server{Handler: m}
	go func() { _ = m.http.Serve(l) }() // ends with Close
	return m, nil
}

// URL is where servers reach it.
func (m *Models) URL() string { return "http://" + m.listener.Addr().String() }

// Close stops it.
func (m *Models) Close() { _ = m.http.Close() }

// ServeHTTP answers from the account of the conversation's first tag.
func (m *Models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client died while it asked
	}
	name := ""
	if found := tagged.FindSubmatch(b); found != nil {
		name = string(found[1])
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	m.Account(name).ServeHTTP(w, r)
}

// Account is what was asked under a tag.
func (m *Models) Account(name string) *scripted.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = strings.TrimSpace(name)
	s := m.accounts[name]
	if s == nil {
		s = scripted.NewServer(scripted.Options{Keyed: true})
		m.accounts[name] = s
	}
	return s
}

// Forget drops an account.
func (m *Models) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.accounts, name)
}
