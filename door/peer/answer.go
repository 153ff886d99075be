package peer

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// answerHeader is where an answer carries its proof.
const answerHeader = "Dormouse-Answer"

// errUnsigned means that an answer is not authentic: its sender is no server of this
// store that speaks our version, or it is the answer to another request.
var errUnsigned = errors.New("the answer is not signed by a server of this store and version")

// proof is what proves that an answer was given by a server of the same store to
// one request, and so to its method, path, body, incarnations, nonce and time:
// its code covers that of the request. Whatever follows is sealed under keys that
// are made of it.
type proof struct {
	by    uint64 // the incarnation that speaks, 0 if it has none
	nonce nonce  // the answerer's own: it never seals twice under one key
	mac   [sha256.Size]byte
}

// prove signs the head of an answer to a request.
func prove(key []byte, to signature, by uint64, status int) proof {
	p := proof{by: by, nonce: newNonce()}
	p.mac = p.code(key, to, status)
	return p
}

func (p proof) code(key []byte, to signature, status int) (code [sha256.Size]byte) {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "dormouse peer "+version+" answer\n%x\n%d\n%d\n%x", to.mac, status, p.by, p.nonce)
	mac.Sum(code[:0])
	return code
}

// header is the proof as an answer carries it.
func (p proof) header() string { return fmt.Sprintf("%s.%d.%x.%x", version, p.by, p.nonce, p.mac) }

// proofOf reads the proof of an answer to a request.
func proofOf(key []byte, h http.Header, to signature, status int) (p proof, err error) {
	text := h.Get(answerHeader)
	parts := strings.Split(text[:min(len(text), maxSignature)], ".")
	if len(parts) != 4 || parts[0] != version {
		return p, errUnsigned
	}
	if p.by, err = strconv.ParseUint(parts[1], 10, 64); err != nil || !unhex(p.nonce[:], parts[2]) || !unhex(p.mac[:], parts[3]) {
		return p, errUnsigned
	}
	if code := p.code(key, to, status); !hmac.Equal(p.mac[:], code[:]) {
		return p, errUnsigned
	}
	return p, nil
}

// The direction of a stream. Each has a key of its own, so that nothing can be sent back
// to its sender.
const (
	toAsker = "dormouse peer " + version + " to the asker"
	toAsked = "dormouse peer " + version + " to the asked"
)

// key is the key of one way of the stream that follows an answer.
func (p proof) key(store []byte, way string) []byte {
	key, err := hkdf.Key(sha256.New, store, p.mac[:], way, 32)
	if err != nil {
		panic(err) // only of a key too long for the hash
	}
	return key
}
