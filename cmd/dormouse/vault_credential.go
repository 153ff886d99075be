package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/client"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func newCredential() *cobra.Command {
	cmd := &cobra.Command{
		Use: "credential", Aliases: []string{"credentials"},
		Short: "Keep the credentials of a vault",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCredentialAdd(), newCredentialList(), newCredentialShow(), newCredentialRotate(), newCredentialArchive(), newCredentialDelete())
	return cmd
}

// credentialFlags are what a credential is for, as it is said on a command line.
type credentialFlags struct {
	bearer, oauth, env      string
	name, expires           string
	hosts, in, metadata     []string
	endpoint, clientID      string
	scope, resource, method string
	secrets                 secretFlags
}

func newCredentialAdd() *cobra.Command {
	var f credentialFlags
	cmd := &cobra.Command{
		Use: "add VAULT", Short: "Put a credential into a vault and print its id",
		Long: `Put a credential into a vault: a token for an MCP server, one that expires and can be
refreshed, or a secret that programs in the sandbox use as an environment variable.
Such programs are to see a placeholder, and the secret takes its place on the way to the
hosts it is for, once sessions can be given a vault. The secret is read from --secret-file, or else from standard input.`,
		Example: `  dormouse vault credential add vlt_… --env GITHUB_TOKEN --host api.github.com --host '*.githubusercontent.com' <token
  dormouse vault credential add vlt_… --bearer https://mcp.example.com/sse --secret-file token
  dormouse vault credential add vlt_… --oauth https://mcp.example.com/sse --secret-file access --expires-at 2030-01-02T15:04:05Z \
    --refresh-token-file refresh --token-endpoint https://id.example.com/token --client-id me`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd)
			if err != nil {
				return err
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Credential, error) {
				return c.CreateCredential(ctx, args[0], o)
			}, func(w io.Writer, k client.Credential) error { return printID(w, k.ID) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.bearer, "bearer", "", "`URL` of the MCP server that takes the secret as a bearer token")
	fs.StringVar(&f.oauth, "oauth", "", "`URL` of the MCP server that takes the secret as an OAuth access token")
	fs.StringVar(&f.env, "env", "", "`name` of the environment variable that stands for the secret")
	fs.StringVar(&f.name, "name", "", "`name` of the credential for people")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "`key=value` to attach; may be given again")
	fs.StringArrayVar(&f.hosts, "host", nil, "`host` that the secret of --env is sent to; may be given again; every host the session may reach, if not given")
	fs.StringSliceVar(&f.in, "in", []string{"header"}, "`where` in a request the placeholder of --env is replaced: header, body or both")
	fs.StringVar(&f.expires, "expires-at", "", "`time` at which the token of --oauth expires, such as 2030-01-02T15:04:05Z")
	fs.StringVar(&f.endpoint, "token-endpoint", "", "`URL` that gives a new token of --oauth for the refresh token")
	fs.StringVar(&f.clientID, "client-id", "", "`id` of the OAuth client")
	fs.StringVar(&f.scope, "scope", "", "OAuth `scope` to ask for")
	fs.StringVar(&f.resource, "resource", "", "OAuth `resource` to ask for")
	fs.StringVar(&f.method, "token-endpoint-auth", "", "how the token endpoint knows the client: none, client_secret_basic or client_secret_post; basic with a client secret, none without, if not given")
	f.secrets.flags(cmd)
	return cmd
}

// options are the credential that the flags describe, with its secrets.
func (f *credentialFlags) options(cmd *cobra.Command) (o client.CredentialOptions, err error) {
	if count(f.bearer != "", f.oauth != "", f.env != "") != 1 {
		return o, usage("give one of --bearer, --oauth and --env")
	}
	if f.env == "" && (len(f.hosts) > 0 || cmd.Flags().Changed("in")) {
		return o, usage("--host and --in are for --env")
	}
	if f.oauth == "" && (f.expires != "" || f.endpoint != "" || f.secrets.refresh != "") {
		return o, usage("--expires-at, --token-endpoint and --refresh-token-file are for --oauth")
	}
	if (f.endpoint == "") != (f.secrets.refresh == "") {
		return o, usage("--token-endpoint and --refresh-token-file belong together")
	}
	o.DisplayName = f.name
	if o.Metadata, err = pairs("metadata", f.metadata); err != nil {
		return o, err
	}
	secret, err := f.secrets.read(cmd)
	if err != nil {
		return o, err
	}
	switch {
	case f.bearer != "":
		o.Auth = client.CredentialAuth{Type: client.StaticBearer, ServerURL: f.bearer, Token: secret}
	case f.env != "":
		o.Auth, err = f.variable(secret)
	default:
		o.Auth, err = f.oauthAuth(secret)
	}
	return o, err
}

func (f *credentialFlags) variable(secret string) (client.CredentialAuth, error) {
	a := client.CredentialAuth{
		Type: client.EnvironmentVariable, SecretName: f.env, SecretValue: secret, Networking: &client.CredentialHosts{Type: "unrestricted"},
		Injection: new(client.CredentialInjection),
	}
	if len(f.hosts) > 0 {
		a.Networking = &client.CredentialHosts{Type: "limited", AllowedHosts: f.hosts}
	}
	for _, in := range f.in {
		switch in {
		case "header":
			a.Injection.Header = true
		case "body":
			a.Injection.Body = true
		default:
			return a, usage("--in is %q; it must be header or body", in)
		}
	}
	return a, nil
}

func (f *credentialFlags) oauthAuth(secret string) (client.CredentialAuth, error) {
	a := client.CredentialAuth{Type: client.MCPOAuth, ServerURL: f.oauth, AccessToken: secret}
	if f.expires != "" {
		t, err := time.Parse(time.RFC3339, f.expires)
		if err != nil {
			return a, usage("--expires-at %q is not a time such as 2030-01-02T15:04:05Z", f.expires)
		}
		a.Expires = &t
	}
	if f.endpoint == "" {
		return a, nil
	}
	refresh, err := readSecretFile(f.secrets.refresh)
	if err != nil {
		return a, err
	}
	a.Refresh = &client.CredentialRefresh{RefreshToken: refresh, TokenEndpoint: f.endpoint, ClientID: f.clientID, Scope: f.scope, Resource: f.resource}
	a.Refresh.EndpointAuth = &client.CredentialEndpoint{Type: f.method}
	if f.method == "" {
		a.Refresh.EndpointAuth.Type = "none"
		if f.secrets.client != "" {
			a.Refresh.EndpointAuth.Type = "client_secret_basic"
		}
	}
	if f.secrets.client != "" {
		a.Refresh.EndpointAuth.ClientSecret, err = readSecretFile(f.secrets.client)
	}
	return a, err
}

func newCredentialList() *cobra.Command {
	var q client.VaultQuery
	cmd := &cobra.Command{
		Use: "list VAULT", Short: "List the credentials of a vault, the newest first",
		Example: `  dormouse vault credential list vlt_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.VaultPage[client.Credential], error) {
				return c.Credentials(ctx, args[0], q)
			}, func(w io.Writer, page client.VaultPage[client.Credential]) error {
				var rows [][]string
				for _, k := range page.Data {
					rows = append(rows, []string{k.ID, k.DisplayName, k.Auth.Type, purpose(k.Auth), at(k.Created), archivedAt(k.Archived)})
				}
				printMore(cmd, page.Next)
				return table(w, "CREDENTIAL\tNAME\tTYPE\tFOR\tCREATED\tARCHIVED", rows)
			})
		},
	}
	pageFlags(cmd, &q)
	return cmd
}

// purpose says what a credential is for.
func purpose(a client.CredentialAuth) string {
	if a.SecretName == "" {
		return a.ServerURL
	}
	hosts := "any host"
	if n := a.Networking; n != nil && n.Type == "limited" {
		hosts = strings.Join(n.AllowedHosts, ", ")
	}
	return a.SecretName + " at " + hosts
}

func showCredential(w io.Writer, k client.Credential) error {
	return table(w, "CREDENTIAL\tNAME\tTYPE\tFOR\tCREATED\tUPDATED\tARCHIVED\tMETADATA", [][]string{
		{k.ID, k.DisplayName, k.Auth.Type, purpose(k.Auth), at(k.Created), at(k.Updated), archivedAt(k.Archived), metadataText(k.Metadata)},
	})
}

func newCredentialShow() *cobra.Command {
	return &cobra.Command{
		Use: "show VAULT CREDENTIAL", Short: "Show a credential, without its secret",
		Example: `  dormouse vault credential show vlt_… vcrd_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Credential, error) {
				return c.Credential(ctx, args[0], args[1])
			}, showCredential)
		},
	}
}

func newCredentialRotate() *cobra.Command {
	var secrets secretFlags
	var expires string
	cmd := &cobra.Command{
		Use: "rotate VAULT CREDENTIAL", Short: "Replace the secret of a credential",
		Long: `Replace the secret of a credential. The new one is used from the next request on, and the
old one is gone. It is read from --secret-file, or else from standard input.`,
		Example: `  dormouse vault credential rotate vlt_… vcrd_… <token
  dormouse vault credential rotate vlt_… vcrd_… --secret-file access --expires-at 2030-01-02T15:04:05Z`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := secrets.read(cmd)
			if err != nil {
				return err
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Credential, error) {
				was, err := c.Credential(ctx, args[0], args[1])
				if err != nil {
					return was, err
				}
				auth, err := rotation(was.Auth, secret, secrets, expires)
				if err != nil {
					return was, err
				}
				return c.ChangeCredential(ctx, args[0], args[1], client.CredentialChange{Auth: &auth})
			}, showCredential)
		},
	}
	cmd.Flags().StringVar(&expires, "expires-at", "", "`time` at which the new token expires, such as 2030-01-02T15:04:05Z")
	secrets.flags(cmd)
	return cmd
}

// rotation is the change that gives a credential a new secret.
func rotation(was client.CredentialAuth, secret string, more secretFlags, expires string) (client.CredentialAuth, error) {
	a := client.CredentialAuth{Type: was.Type}
	if was.Type != client.MCPOAuth && (expires != "" || more.refresh != "" || more.client != "") {
		return a, usage("--expires-at, --refresh-token-file and --client-secret-file are for a credential of type %s", client.MCPOAuth)
	}
	switch was.Type {
	case client.StaticBearer:
		a.Token = secret
		return a, nil
	case client.EnvironmentVariable:
		a.SecretValue = secret
		return a, nil
	}
	a.AccessToken = secret
	if expires != "" {
		t, err := time.Parse(time.RFC3339, expires)
		if err != nil {
			return a, usage("--expires-at %q is not a time such as 2030-01-02T15:04:05Z", expires)
		}
		a.Expires = &t
	}
	if more.refresh == "" && more.client == "" {
		return a, nil
	}
	a.Refresh = new(client.CredentialRefresh)
	var err error
	if more.refresh != "" {
		if a.Refresh.RefreshToken, err = readSecretFile(more.refresh); err != nil {
			return a, err
		}
	}
	if more.client != "" {
		a.Refresh.EndpointAuth = &client.CredentialEndpoint{Type: "client_secret_basic"}
		a.Refresh.EndpointAuth.ClientSecret, err = readSecretFile(more.client)
	}
	return a, err
}

func newCredentialArchive() *cobra.Command {
	return &cobra.Command{
		Use: "archive VAULT CREDENTIAL", Short: "Archive a credential: its secret is gone, its record stays",
		Example: `  dormouse vault credential archive vlt_… vcrd_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Credential, error) {
				return c.ArchiveCredential(ctx, args[0], args[1])
			}, showCredential)
		},
	}
}

func newCredentialDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete VAULT CREDENTIAL", Short: "Delete a credential",
		Example: `  dormouse vault credential delete vlt_… vcrd_…`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (string, error) {
				return args[1], c.DeleteCredential(ctx, args[0], args[1])
			}, printGone)
		},
	}
}
