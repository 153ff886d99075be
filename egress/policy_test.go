package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
)

// limited is the policy of a session whose network leads to these hosts alone.
func limited(t testing.TB, packages bool, hosts ...string) func(egress.Session) egress.Policy {
	t.Helper()
	p := egress.Policy{Network: egress.Limited, Packages: packages, Hosts: parseHosts(t, hosts...)}
	return func(egress.Session) egress.Policy { return p }
}

func parseHosts(t testing.TB, names ...string) []dormouse.Host {
	t.Helper()
	var hosts []dormouse.Host
	for _, name := range names {
		h, err := dormouse.ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func TestALimitedNetworkLeadsToTheHostsNamed(t *testing.T) {
	_, addr := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "reached") })
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	dns := &names{known: map[string][]string{}}
	for _, name := range []string{"here.example", "www.below.example", "below.example", "other.example", "here.example.evil.example", "nothere.example", "packages.example"} {
		dns.known[name] = []string{"127.0.0.1"}
	}
	at := func(name string) string { return name + ":" + port }
	r := serve(t, egress.Options{
		Resolver: dns, Policy: limited(t, false, at("here.example"), at("*.below.example")),
		PackageHosts: func() []dormouse.Host { return parseHosts(t, at("packages.example")) },
	}, at("here.example"), at("www.below.example"), at("below.example"), at("other.example"), at("here.example.evil.example"), at("nothere.example"), at("packages.example"))
	for name, want := range map[string]int{
		"here.example": 200, "HERE.example": 200, "here.example.": 200, "www.below.example": 200,
		"other.example": 403, "below.example": 403, "here.example.evil.example": 403, "nothere.example": 403, "packages.example": 403, // E01, E02
		"127.0.0.1": 403, "[::1]": 403, "2130706433": 400, "here.example@other.example": 400, // E08, E13
	} {
		for request, verb := range map[string]string{
			"GET http://%s/ HTTP/1.1\r\nHost: here.example\r\n\r\n": "GET",     // E49
			"CONNECT %s HTTP/1.1\r\nHost: here.example\r\n\r\n":     "CONNECT", // E49
		} {
			status, body := r.ask(t, verb, fmt.Sprintf(request, at(name)))
			if status != want {
				t.Errorf("%s %s: %d %s, want %d", verb, name, status, body, want)
			}
			if status == http.StatusForbidden && (!strings.Contains(body, "limited") || !strings.Contains(body, "among its hosts may reach it")) {
				t.Errorf("%s %s: it is not said why: %s", verb, name, body)
			}
		}
	}
	for _, name := range dns.asked {
		if name != "here.example" && name != "www.below.example" {
			t.Errorf("%s was looked up, and that alone tells somebody something", name) // E29
		}
	}
	refused := 0
	for _, l := range r.audit.lines(t, 0) {
		if l.Verdict == "refused" {
			refused++
			if !strings.Contains(l.Error, "limited") || !strings.Contains(l.Error, "among its hosts may reach it") {
				t.Errorf("the audit says %q", l.Error)
			}
		}
	}
	if refused == 0 {
		t.Error("the audit says nothing of what was refused")
	}
}

// ask sends a request as it is. A tunnel has no body.
func (r *rig) ask(t testing.TB, verb, request string) (int, string) {
	t.Helper()
	c := r.dial(t)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: verb})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if verb == http.MethodConnect && res.StatusCode == http.StatusOK {
		return res.StatusCode, ""
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestALimitedNetworkLeadsToPackagesIfItMay(t *testing.T) {
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) {})
	hosts := func() []dormouse.Host { return parseHosts(t, addr) }
	request := "GET http://" + addr + "/ HTTP/1.1\r\nHost: x\r\n\r\n"
	r := serve(t, egress.Options{Policy: limited(t, true), PackageHosts: hosts}, addr)
	if status, body := r.raw(t, request); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if status, body := r.raw(t, "CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusForbidden || !strings.Contains(body, "--package-hosts other.example.") {
		t.Errorf("%d %s", status, body)
	}
	r = serve(t, egress.Options{Policy: limited(t, false), PackageHosts: hosts}, addr)
	if status, body := r.raw(t, request); status != http.StatusForbidden || !strings.Contains(body, "package_managers in the environment allows it") {
		t.Errorf("%d %s", status, body)
	}
}

func TestANamedHostIsNoWayToWhereNobodyMayGo(t *testing.T) {
	dns := &names{known: map[string][]string{"inner.example": {"10.0.0.7"}, "mixed.example": {"93.184.216.34", "127.0.0.1"}}}
	r := serve(t, egress.Options{Resolver: dns, Policy: limited(t, false, "inner.example", "mixed.example", "169.254.169.254", "[::1]:80", "mail.example:25")})
	for to, want := range map[string]string{
		"inner.example:443": "a private address", "mixed.example:443": "a loopback address", "169.254.169.254:80": "a link-local address", "[::1]:80": "a loopback address", // E23, E25
		"inner.example:22": "is not among its hosts", "10.0.0.7:443": "is not among its hosts", // E10
	} {
		if status, body := r.raw(t, "CONNECT "+to+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", to, status, body)
		}
	}
}

func TestEveryRequestOfAConnectionIsAskedFor(t *testing.T) {
	_, here := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/", http.StatusFound)
	})
	r := serve(t, egress.Options{Policy: limited(t, false, here)}, here)
	c := r.dial(t)
	from := bufio.NewReader(c)
	_, _ = io.WriteString(c, "GET http://"+here+"/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if status, body := response(t, from); status != http.StatusFound { // E62
		t.Errorf("the first request of a connection: %d %s", status, body)
	}
	_, _ = io.WriteString(c, "GET http://other.example/ HTTP/1.1\r\nHost: "+here+"\r\n\r\n")
	if status, body := response(t, from); status != http.StatusForbidden { // E40
		t.Errorf("the second request of a connection: %d %s", status, body)
	}
}

func TestASessionsOwnPolicyHolds(t *testing.T) {
	_, addr := upstream(t, func(http.ResponseWriter, *http.Request) {})
	for want, p := range map[int]egress.Policy{
		http.StatusForbidden: {},
		http.StatusOK:        {Network: egress.Limited, Hosts: parseHosts(t, addr)},
	} {
		r := serveSession(t, egress.Options{}, egress.Session{ID: "sesn_test", Policy: p}, addr)
		if status, body := r.raw(t, "GET http://"+addr+"/ HTTP/1.1\r\nHost: x\r\n\r\n"); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
}
