package rig

import (
	"bytes"
	"fmt"
	"io"
	"maps"
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
	b = fill(b)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	m.Account(name).ServeHTTP(w, r)
}

// Made stands in a script for the id of what the agent has made by then: the
// n-th child, or the n-th wake-up, counted from 1.
func Made(what string, n int) string { return fmt.Sprintf("~%s%d~", what, n) }

var made = map[string]*regexp.Regexp{
	"child":  regexp.MustCompile(`Child session (sesn_[0-9A-Za-z]+) is started\.`),
	"wakeup": regexp.MustCompile(`Wake-up (wake_[0-9A-Za-z]+) is scheduled\.`),
}

// fill writes the ids that tools have returned into the script that uses them. A
// script is written before it is played.
func fill(request []byte) []byte {
	for what, answer := range made {
		for i, found := range answer.FindAllSubmatch(request, -1) {
			request = bytes.ReplaceAll(request, []byte(Made(what, i+1)), found[1])
		}
	}
	return request
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

// Forget drops an account, and those of the sessions it spawned.
func (m *Models) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.accounts, func(of string, _ *scripted.Server) bool {
		return of == name || strings.HasPrefix(of, name+".")
	})
}
