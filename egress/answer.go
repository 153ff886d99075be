package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"github.com/dormouse-run/dormouse"
)

// errSilent ends a connection that was idle for too long.
var errSilent = errors.New("nothing was sent either way for too long")

// refusal says why a request must not leave, and what would allow it.
type refusal struct {
	why    string
	entry  string // for AllowFlag; empty if that allows nothing
	remedy string // what else would allow it, as a sentence
}

// Error says both, for the audit.
func (r *refusal) Error() string {
	text := r.why + "."
	if r.entry != "" {
		text += fmt.Sprintf(" The operator of the server can allow it with %s %s.", AllowFlag, r.entry)
	}
	if r.remedy != "" {
		text += " " + r.remedy
	}
	return text
}

// errRevoked ends what uses a credential that is no longer granted.
var errRevoked = errors.New("the credential that it uses was revoked")

// invalid says what is wrong with a request.
type invalid string

func (i invalid) Error() string      { return string(i) }
func (invalid) Is(target error) bool { return target == dormouse.ErrInvalid }

// The verdicts of the audit.
const (
	verdictAllowed     = "allowed"
	verdictRefused     = "refused"
	verdictInvalid     = "invalid"
	verdictUnreachable = "unreachable"
	verdictTimeout     = "timeout"
	verdictGone        = "gone" // the program or the server went away first
	verdictUnavailable = "unavailable"
	verdictRevoked     = "revoked"
)

// answer is the response to a request that failed. It can be the error itself.
type answer struct {
	status  int
	verdict string
	text    string
}

// Error says what is wrong, for the audit.
func (a answer) Error() string { return a.text }

// explain turns an error into an answer. Its text does not say to which addresses a name
// resolves nor what our resolvers are: a sandbox need not know.
func explain(ctx context.Context, to string, err error) answer {
	var no *refusal
	var short *unavailable
	var given answer
	switch {
	case errors.As(err, &given):
		return given
	case errors.Is(err, errRevoked), errors.Is(context.Cause(ctx), errRevoked):
		return answer{http.StatusServiceUnavailable, verdictRevoked, to + " was given up: " + errRevoked.Error() + "."}
	case errors.As(err, &short):
		return answer{http.StatusServiceUnavailable, verdictUnavailable, to + " was sent nothing: " + short.what + "."}
	case errors.As(err, &no):
		return answer{http.StatusForbidden, verdictRefused, to + " is refused: " + no.Error()}
	case errors.Is(err, dormouse.ErrInvalid):
		return answer{http.StatusBadRequest, verdictInvalid, "The request is not one for a proxy: " + err.Error() + "."}
	case errors.Is(context.Cause(ctx), errSilent):
		return answer{http.StatusGatewayTimeout, verdictTimeout, to + " was given up: " + errSilent.Error() + "."}
	case ctx.Err() != nil:
		return answer{http.StatusBadGateway, verdictGone, to + " was given up."}
	case timedOut(err):
		return answer{http.StatusGatewayTimeout, verdictTimeout, to + " did not answer in time."}
	}
	return answer{http.StatusBadGateway, verdictUnreachable, to + " cannot be reached: " + cause(err) + "."}
}

func timedOut(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// cause is the part of a network error that reveals no address.
func cause(err error) string {
	var name *net.DNSError
	var errno syscall.Errno
	if words := distrust(err); words != "" {
		return words
	}
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no such name"
	case errors.As(err, &name):
		return "the name could not be looked up"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return "the connection broke before there was an answer"
}

// distrust says why a TLS connection was given up, or nothing if it was not that.
func distrust(err error) string {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var bad x509.CertificateInvalidError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		return "its certificate is for other names"
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that is not known here"
	case errors.As(err, &bad) && bad.Reason == x509.Expired:
		return "its certificate has expired or is not valid yet"
	case errors.As(err, &bad), errors.As(err, &certificate):
		return "its certificate is not valid"
	case alert(err) != "":
		return "it ended the TLS connection with " + strconv.Quote(alert(err))
	case errors.As(err, &record):
		return "it does not speak TLS"
	}
	return ""
}

func (a answer) write(w http.ResponseWriter) {
	http.Error(w, "dormouse: "+a.text, a.status)
}
