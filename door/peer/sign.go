package peer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const scheme = "Dormouse "

// signature is what proves that a request comes from a server of the same store
// and is meant for one incarnation of one server. It names the body by its
// digest, so that of a stranger's request no body has to be read.
type signature struct {
	from, to uint64 // incarnations
	body     [sha256.Size]byte
	mac      []byte
}

// sign signs a request's path and body.
func sign(key []byte, from, to uint64, path string, body []byte) signature {
	s := signature{from: from, to: to, body: sha256.Sum256(body)}
	s.mac = s.code(key, path)
	return s
}

func (s signature) code(key []byte, path string) []byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "dormouse peer 1\n%d\n%d\n%s\n%x", s.from, s.to, path, s.body)
	return mac.Sum(nil)
}

// of reports whether s was made with the key, for this path.
func (s signature) of(key []byte, path string) bool { return hmac.Equal(s.mac, s.code(key, path)) }

// covers reports whether s was made for this body.
func (s signature) covers(body []byte) bool { return s.body == sha256.Sum256(body) }

// header is the signature as a request carries it.
func (s signature) header() string {
	return fmt.Sprintf("%s%d.%d.%x.%x", scheme, s.from, s.to, s.body, s.mac)
}

// signatureOf reads the signature of a request.
func signatureOf(h http.Header) (s signature, ok bool) {
	rest, ok := strings.CutPrefix(h.Get("Authorization"), scheme)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 || len(parts[2]) != hex.EncodedLen(len(s.body)) {
		return s, false
	}
	var errs [4]error
	s.from, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	s.to, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	_, errs[2] = hex.Decode(s.body[:], []byte(parts[2]))
	s.mac, errs[3] = hex.DecodeString(parts[3])
	return s, errs == [4]error{}
}
