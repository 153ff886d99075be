//go:build !windows

package main

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/egress"
	"github.com/dormouse-run/dormouse/model/anthropic"
	"github.com/dormouse-run/dormouse/sandbox/rootfs"
)

// config is everything that may be chosen about a server. Every field has a
// flag; a file and the environment set the same flags first.
type config struct {
	Data         string
	usual        bool // Data is the default
	Store        dsn
	Blobs        bucket
	VaultKeys    string
	Listen       string
	listening    net.Addr // where that is, once the server listens
	Advertise    string
	ServerName   string
	Lease        time.Duration
	Hosts        []string
	Model        string
	ModelTimeout time.Duration
	AnthropicKey string // a file
	AnthropicURL string
	Prices       []string
	ScriptedURL  string
	Sandbox      string
	Image        string
	ImageAllow   []string
	Spares       int
	Limits       limits
	Network      bool
	EgressAllow  []string
	PackageHosts []string
	Runner       string
	DropAfter    time.Duration
	SleepAfter   time.Duration
	IdleTimeout  time.Duration
	Snapshots    string
	KeepCount    int
	KeepAge      time.Duration
	CrossSession bool
	MaxActive    int
	MaxConns     int
	LogFormat    string
	LogLevel     string
}

func (c *config) flags(f *pflag.FlagSet) {
	storeFlag(f, &c.Store)
	c.Blobs.flags(f)
	f.StringVar(&c.VaultKeys, "vault-keys", "", "`file` with the keys that secrets are sealed under, made at the first start; the data directory's name with .vault-keys after it, beside that directory, if not given")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:7717", "`address` to listen on")
	f.IntVar(&c.MaxConns, "max-connections", defaultConns, "how many `connections` clients may hold; for one more the one that has waited the longest for a request is closed, and none that is being answered")
	f.StringVar(&c.Advertise, "advertise", "", "`address` at which other servers of the same database reach this one; --listen if not given")
	f.StringVar(&c.ServerName, "server-name", "", "`name` of this server among others; its host name and port if not given")
	f.DurationVar(&c.Lease, "lease", 3*time.Second, "how long a server that gives no sign keeps its sessions from the others")
	f.StringSliceVar(&c.Hosts, "host", nil, "`name` by which clients call this server, besides loopback and --listen")
	f.StringVar(&c.Model, "model", "", "model of sessions that name none; "+anthropic.Default+" with a key of Anthropic's, else offline, if not given; see \"dormouse help models\"")
	f.StringVar(&c.AnthropicKey, "anthropic-key-file", "", "`file` with an API key of Anthropic's; what ANTHROPIC_API_KEY says if not given")
	f.StringVar(&c.AnthropicURL, "anthropic-url", "", "`URL` that answers as Anthropic's API does, in its place")
	f.DurationVar(&c.ModelTimeout, "model-timeout", 5*time.Minute, "how long a model may say nothing before its call is given up")
	f.StringSliceVar(&c.Prices, "price", nil, "what a model costs, in dollars per million tokens: `MODEL=IN/OUT`")
	f.StringVar(&c.ScriptedURL, "scripted-url", "", "`URL` of a scripted model; adds the models scripted and scripted-keyed")
	f.StringVar(&c.Sandbox, "sandbox", "", "gvisor, or local, which isolates nothing; what --data has, or gvisor, if not given")
	f.StringVar(&c.Image, "image", "", "what gVisor sandboxes start from: an image `reference`, tarball:FILE, oci:DIR or dir:DIR; this machine's own /usr if not given")
	f.StringSliceVar(&c.ImageAllow, "image-allow", nil, "`image` that sessions may choose: a repository, a registry that ends in /, or tarball:, oci: or dir: with a path; any registry, and no file, if not given")
	f.IntVar(&c.Spares, "spares", 1, "how many gVisor sandboxes to keep ready for sessions to come, and as many for those that wake")
	c.Limits.flags(f)
	f.BoolVar(&c.Network, "network", true, "let gVisor sandboxes reach the internet, through a proxy in this server")
	f.StringSliceVar(&c.EgressAllow, "egress-allow", nil, "`address`, prefix, address:port or name:port that sandboxes may reach although it is not public")
	f.StringSliceVar(&c.PackageHosts, "package-hosts", nil, "`host` that packages come from, for sessions whose network is limited; what this machine's own package managers say if not given")
	f.StringVar(&c.Runner, "runner", "", "`file` to run inside sandboxes instead of the runner in this program")
	f.DurationVar(&c.DropAfter, "drop-after", 30*time.Second, "how long a session with nothing to do stays in memory")
	f.DurationVar(&c.SleepAfter, "sleep-after", 5*time.Minute, "how long the sandbox of a session that does not say may be idle before it is stopped; 0 keeps it")
	f.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "how long any sandbox may be idle before it is stopped, whatever its session says; 0 is as long as that says")
	f.IntVar(&c.MaxActive, "max-active", 0, "how many sandboxes may be awake at once; at the limit the session idle the longest sleeps; 0 for no limit")
	f.StringVar(&c.Snapshots, "snapshots", "turn", "when snapshots of a workspace are taken whose environment does not say: turn, after each turn that used its sandbox, call, also after each tool call that did, or off")
	f.IntVar(&c.KeepCount, "snapshots-keep", 100, "how many snapshots of a session are kept, the newest; 0 for as many as there may be")
	f.DurationVar(&c.KeepAge, "snapshots-max-age", 0, "how long snapshots are kept; the newest of a session always is; 0 for as long as the session")
	f.BoolVar(&c.CrossSession, "allow-cross-session", false, "let agents use snapshots of other sessions, when they say that they mean to")
	f.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	f.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
}

// check refuses what could not work, once, before anything is opened.
func (c *config) check() error {
	if c.Data == "" {
		return usage("--data is empty, and there is no home directory to put it in")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return usage("--listen %q is not an address such as 127.0.0.1:7717", c.Listen)
	}
	if err := c.checkServer(); err != nil {
		return err
	}
	if err := c.Blobs.check(); err != nil {
		return err
	}
	for flag, value := range map[string]string{"scripted-url": c.ScriptedURL, "anthropic-url": c.AnthropicURL} {
		if u, err := url.Parse(value); value != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return usage("--%s is not a URL such as http://127.0.0.1:7718", flag) // it may hold a password
		}
	}
	if c.Sandbox != "" && c.Sandbox != sandboxGVisor && c.Sandbox != sandboxLocal {
		return usage("--sandbox is %q; it must be gvisor or local", c.Sandbox)
	}
	if c.Spares < 0 || c.Spares > 64 {
		return usage("--spares must be between 0 and 64")
	}
	if err := c.Limits.check(); err != nil {
		return err
	}
	if _, err := egress.ParseAllow(c.EgressAllow); err != nil {
		return usage("--egress-allow: %w", err)
	}
	if _, err := parseHosts(c.PackageHosts); err != nil {
		return usage("%s: %w", egress.PackageFlag, err)
	}
	if _, err := rootfs.ParseAllow(c.ImageAllow); err != nil {
		return usage("--image-allow: %w", err)
	}
	if c.ModelTimeout <= 0 {
		return usage("--model-timeout must be more than nothing")
	}
	if c.DropAfter <= 0 {
		return usage("--drop-after must be more than nothing")
	}
	if c.MaxConns != 0 && c.MaxConns < leastConns {
		return usage("--max-connections must be at least %d", leastConns)
	}
	if c.MaxActive < 0 {
		return usage("--max-active cannot be negative")
	}
	if c.SleepAfter < 0 || c.IdleTimeout < 0 {
		return usage("--sleep-after and --idle-timeout cannot be negative")
	}
	if c.Snapshots == "" || dormouse.SnapshotPolicy(c.Snapshots).Validate() != nil {
		return usage("--snapshots is %q; it must be turn, call or off", c.Snapshots)
	}
	if c.KeepCount < 0 || c.KeepAge < 0 {
		return usage("--snapshots-keep and --snapshots-max-age cannot be negative")
	}
	if _, err := parsePrices(c.Prices); err != nil {
		return usage("--price: %w", err)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return usage("--log-format is %q; it must be text or json", c.LogFormat)
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usage("--log-level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	return nil
}

// checkServer refuses a server that others could not live with.
func (c *config) checkServer() error {
	if err := c.Store.check(); err != nil {
		return err
	}
	if c.Advertise != "" {
		if host, port, err := net.SplitHostPort(c.Advertise); err != nil || everywhere(host) || port == "" || port == "0" {
			return usage("--advertise %q is not an address such as 10.0.0.1:7717", c.Advertise)
		}
	} else if host, _, _ := net.SplitHostPort(c.Listen); c.Store.value != "" && everywhere(host) {
		return usage("--listen %q is every address; say with --advertise which one other servers can use", c.Listen)
	}
	if c.Lease < time.Second {
		return usage("--lease must be at least 1s")
	}
	return nil
}

// everywhere reports whether listening at host means every address.
func everywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
