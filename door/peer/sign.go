package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	scheme = "Dormouse "
	// version is part of everything that is signed. Servers of different versions refuse
	// each other's requests.
	version = "2"
	// maxSignature bounds a signature in a header.
	maxSignature = 512
)

// nonce tells one request from all others, and one answer.
type nonce [16]byte

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // it cannot fail
	return n
}

// signature is what proves that a request comes from a server of the same store,
// is meant for one incarnation of one server, and was made at a time. It names
// the body by its digest, so that of a stranger's request no body has to be read.
type signature struct {
	from, to uint64 // incarnations
	time     int64  // microseconds since 1970 by the database's clock
	nonce    nonce
	body     [sha256.Size]byte
	mac      [sha256.Size]byte
}

// sign signs a POST that is made now: its path and its body.
func sign(key []byte, from, to uint64, now time.Time, path string, body []byte) signature {
	s := signature{from: from, to: to, time: now.UnixMicro(), nonce: newNonce(), body: sha256.Sum256(body)}
	s.mac = s.code(key, http.MethodPost, path)
	return s
}

func (s signature) code(key []byte, method, path string) (code [sha256.Size]byte) {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "dormouse peer "+version+" request\n%d\n%d\n%d\n%x\n%s\n%s\n%x", s.from, s.to, s.time, s.nonce, method, path, s.body)
	mac.Sum(code[:0])
	return code
}

// of reports whether s was made with the key, for this method and path.
func (s signature) of(key []byte, method, path string) bool {
	code := s.code(key, method, path)
	return hmac.Equal(s.mac[:], code[:])
}

// covers reports whether s was made for this body.
func (s signature) covers(body []byte) bool { return s.body == sha256.Sum256(body) }

// header is the signature as a request carries it.
func (s signature) header() string {
	return fmt.Sprintf("%s%s.%d.%d.%d.%x.%x.%x", scheme, version, s.from, s.to, s.time, s.nonce, s.body, s.mac)
}

// signatureOf reads the signature of a request.
func signatureOf(h http.Header) (s signature, ok bool) {
	text := h.Get("Authorization")
	if len(text) > maxSignature {
		return s, false
	}
	rest, ok := strings.CutPrefix(text, scheme+version+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 6 {
		return s, false
	}
	var errs [3]error
	s.from, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	s.to, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	s.time, errs[2] = strconv.ParseInt(parts[2], 10, 64)
	return s, errs == [3]error{} && unhex(s.nonce[:], parts[3]) && unhex(s.body[:], parts[4]) && unhex(s.mac[:], parts[5])
}

// unhex reads exactly as many bytes as b has.
func unhex(b []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(b)) {
		return false
	}
	_, err := hex.Decode(b, []byte(text))
	return err == nil
}
