package postgres_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a store and the database and can do to their connections
// what a network does.
type proxy struct {
	dir string

	mu    sync.Mutex
	trap  func(said []byte) fate // guarded by mu; asked about all that the store says
	conns []net.Conn             // guarded by mu
}

// fate is what becomes of a connection.
type fate int

const (
	passes fate = iota
	// dropped: the database never hears of it.
	dropped
	// unanswered: the database does what was said, and its answer is lost.
	unanswered
	// frozen: nothing is heard from either side, and neither learns why.
	frozen
)

var proxies atomic.Int64

// newProxy listens beside the server's own socket.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	// Not where tests keep theirs: the name of a socket may have 107 bytes.
	dir := filepath.Join(server.Dir(), fmt.Sprintf("proxy%d", proxies.Add(1)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &proxy{dir: dir}
	listener, err := net.Listen("unix", filepath.Join(dir, filepath.Base(server.Socket())))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			store, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.carry(store, &running) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		running.Wait()
	})
	return p
}

// through is a data source name by way of the proxy.
func (p *proxy) through(dsn string) string {
	return strings.Replace(dsn, "host="+server.Dir(), "host="+p.dir, 1)
}

// once arms a trap that springs at the first message to a prepared statement,
// and says when it does.
func (p *proxy) once(statement string, f fate) (sprung <-chan struct{}) {
	said := make(chan struct{})
	p.always(func(message []byte) fate {
		if !bytes.Contains(message, []byte("\x00"+statement+"\x00")) {
			return passes
		}
		p.trap = nil
		close(said)
		return f
	})
	return said
}

// always sets what becomes of messages; nil lets them all pass.
func (p *proxy) always(trap func([]byte) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = trap
}

// cut ends every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) carry(store net.Conn, running *sync.WaitGroup) {
	database, err := net.Dial("unix", server.Socket())
	if err != nil {
		store.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, store, database)
	p.mu.Unlock()
	defer database.Close()
	defer store.Close()

	answering := make(chan bool, 1) // false: answers are lost from now on
	answering <- true
	running.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := database.Read(buf)
			if err != nil {
				store.Close()
				return
			}
			on := <-answering
			if answering <- on; !on {
				store.Close()
				return
			}
			if _, err := store.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 1<<16)
	for {
		n, err := store.Read(buf)
		if err != nil {
			return
		}
		switch p.judge(buf[:n]) {
		case dropped:
			return
		case frozen:
			<-answering
			for err == nil { // until it is cut
				_, err = store.Read(buf)
			}
			answering <- false
			return
		case unanswered:
			<-answering
			answering <- false
		case passes:
		}
		if _, err := database.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) judge(said []byte) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap == nil {
		return passes
	}
	return p.trap(said)
}
