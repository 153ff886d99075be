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
// and is meant for one incarnation of one server.
type signature struct {
	from, to uint64 // incarnations
	mac      []byte
}

// sign signs a request's path and body.
func sign(key []byte, from, to uint64, path string, body []byte) signature {
	digest := sha256.Sum256(body)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "dormouse peer 1\n%d\n%d\n%s\n%x", from, to, path, digest)
	return signature{from: from, to: to, mac: mac.Sum(nil)}
}

// covers reports whether s is the signature of this request.
func (s signature) covers(key []byte, path string, body []byte) bool {
	return hmac.Equal(s.mac, sign(key, s.from, s.to, path, body).mac)
}

// header is the signature as a request carries it.
func (s signature) header() string {
	return scheme + strconv.FormatUint(s.from, 10) + "." + strconv.FormatUint(s.to, 10) + "." + hex.EncodeToString(s.mac)
}

// signatureOf reads the signature of a request.
func signatureOf(h http.Header) (s signature, ok bool) {
	rest, ok := strings.CutPrefix(h.Get("Authorization"), scheme)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return s, false
	}
	var errs [3]error
	s.from, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	s.to, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	s.mac, errs[2] = hex.DecodeString(parts[2])
	return s, errs == [3]error{}
}
