package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse/client"
)

func newVault() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vault",
		Short: "Keep credentials that sandboxes use and never hold",
		Long: `Keep credentials in vaults. What a credential holds is sealed before it is stored and
is never shown again. A secret is read from a file or from standard input, and never
from the command line, where every user of the machine could read it.

Sessions cannot be given a vault yet: credentials are kept, and nothing uses them.`,
		Example: `  dormouse vault create team
  dormouse vault credential add vlt_… --env GITHUB_TOKEN --host api.github.com <token
  dormouse vault credential rotate vlt_… vcrd_… --secret-file token
  dormouse vault rekey`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	clientFlags(cmd)
	cmd.AddCommand(newVaultCreate(), newVaultList(), newVaultShow(), newVaultUpdate(), newVaultArchive(), newVaultDelete(),
		newCredential(), newRekey(), newKeys())
	return cmd
}

func newVaultCreate() *cobra.Command {
	var metadata []string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a vault and print its id",
		Example: `  dormouse vault create team
  dormouse vault create 'my keys' --metadata owner=me`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pairs, err := pairs("metadata", metadata)
			if err != nil {
				return err
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Vault, error) {
				return c.CreateVault(ctx, client.VaultOptions{DisplayName: args[0], Metadata: pairs})
			}, func(w io.Writer, v client.Vault) error { return printID(w, v.ID) })
		},
	}
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "`key=value` to attach; may be given again")
	return cmd
}

func printID(w io.Writer, id string) error {
	_, err := fmt.Fprintln(w, id)
	return err
}

// pageFlags are those of lists that are under /v1.
func pageFlags(cmd *cobra.Command, q *client.VaultQuery) {
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "how many to list; 20 if not given")
	cmd.Flags().StringVar(&q.Page, "page", "", "`cursor` of the page, from the one before")
	cmd.Flags().BoolVar(&q.Archived, "archived", false, "list what is archived too")
}

// printMore says how to get the next page.
func printMore(cmd *cobra.Command, next string) {
	if next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "There are more: --page %s\n", next)
	}
}

func newVaultList() *cobra.Command {
	var q client.VaultQuery
	cmd := &cobra.Command{
		Use: "list", Short: "List vaults, the newest first",
		Example: `  dormouse vault list
  dormouse vault list --archived --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.VaultPage[client.Vault], error) {
				return c.Vaults(ctx, q)
			}, func(w io.Writer, page client.VaultPage[client.Vault]) error {
				var rows [][]string
				for _, v := range page.Data {
					rows = append(rows, []string{v.ID, v.DisplayName, at(v.Created), archivedAt(v.Archived)})
				}
				printMore(cmd, page.Next)
				return table(w, "VAULT\tNAME\tCREATED\tARCHIVED", rows)
			})
		},
	}
	pageFlags(cmd, &q)
	return cmd
}

func archivedAt(t *time.Time) string {
	if t == nil {
		return ""
	}
	return at(*t)
}

// showVault prints a vault as a table of one.
func showVault(w io.Writer, v client.Vault) error {
	return table(w, "VAULT\tNAME\tCREATED\tUPDATED\tARCHIVED\tMETADATA", [][]string{
		{v.ID, v.DisplayName, at(v.Created), at(v.Updated), archivedAt(v.Archived), metadataText(v.Metadata)},
	})
}

func newVaultShow() *cobra.Command {
	return &cobra.Command{
		Use: "show VAULT", Short: "Show a vault",
		Example: `  dormouse vault show vlt_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Vault, error) { return c.Vault(ctx, args[0]) }, showVault)
		},
	}
}

func newVaultUpdate() *cobra.Command {
	var name string
	var metadata, without []string
	cmd := &cobra.Command{
		Use: "update VAULT", Short: "Rename a vault or change its metadata",
		Example: `  dormouse vault update vlt_… --name 'the team'
  dormouse vault update vlt_… --metadata owner=me --remove-metadata old`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			patch, err := metadataPatch(metadata, without)
			if err != nil {
				return err
			}
			change := client.VaultChange{Metadata: patch}
			if cmd.Flags().Changed("name") {
				change.DisplayName = &name
			}
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Vault, error) {
				return c.ChangeVault(ctx, args[0], change)
			}, showVault)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the new `name`")
	metadataFlags(cmd, &metadata, &without)
	return cmd
}

func metadataFlags(cmd *cobra.Command, metadata, without *[]string) {
	cmd.Flags().StringArrayVar(metadata, "metadata", nil, "`key=value` to set; may be given again")
	cmd.Flags().StringArrayVar(without, "remove-metadata", nil, "`key` to remove; may be given again")
}

func metadataPatch(metadata, without []string) (map[string]*string, error) {
	set, err := pairs("metadata", metadata)
	patch := make(map[string]*string)
	for k, v := range set {
		patch[k] = &v
	}
	for _, k := range without {
		patch[k] = nil
	}
	return patch, err
}

func newVaultArchive() *cobra.Command {
	return &cobra.Command{
		Use: "archive VAULT", Short: "Archive a vault: its secrets are gone, its records stay",
		Example: `  dormouse vault archive vlt_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Vault, error) { return c.ArchiveVault(ctx, args[0]) }, showVault)
		},
	}
}

func newVaultDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete VAULT", Short: "Delete a vault with all its credentials",
		Example: `  dormouse vault delete vlt_…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (string, error) {
				return args[0], c.DeleteVault(ctx, args[0])
			},
				func(w io.Writer, id string) error { return printGone(w, id) })
		},
	}
}

func printGone(w io.Writer, id string) error {
	_, err := fmt.Fprintln(w, id, "is deleted")
	return err
}

func newRekey() *cobra.Command {
	var forget bool
	cmd := &cobra.Command{
		Use: "rekey", Short: "Seal every secret under a new key and retire the others",
		Long: `Make a new key, seal every secret under it, and retire the keys before it. Requests that
are under way are waited for: a retired key is removed an hour later. Ended at any
point and run again it goes on with the same new key. Keep a copy of the file with the
keys apart from those of the data, and renew it after this.`,
		Example: `  dormouse vault rekey
  dormouse vault rekey --forget-lost`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) (client.Rekeyed, error) { return c.Rekey(ctx, forget) },
				func(w io.Writer, done client.Rekeyed) error {
					_, err := fmt.Fprintf(w, "%s seals now; %d credentials were sealed anew, %d keys are retired\n", done.Key, done.Resealed, len(done.Retired))
					if err == nil && done.Lost > 0 {
						_, err = fmt.Fprintf(w, "%d credentials were lost with the keys that are missing; rotate or delete them\n", done.Lost)
					}
					return err
				})
		},
	}
	cmd.Flags().BoolVar(&forget, "forget-lost", false, "go on although a key is missing: what is sealed under it is lost, and has to be rotated or deleted")
	return cmd
}

func newKeys() *cobra.Command {
	return &cobra.Command{
		Use: "keys", Short: "List the keys that secrets are sealed under",
		Long: `List the keys that secrets are sealed under, the newest first. The keys themselves are in
the file that --vault-keys of the server names, and are not shown.`,
		Example: `  dormouse vault keys
  dormouse vault keys --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, func(ctx context.Context, c *client.Client) ([]client.VaultKey, error) { return c.VaultKeys(ctx) },
				func(w io.Writer, keys []client.VaultKey) error {
					var rows [][]string
					for _, k := range keys {
						rows = append(rows, []string{k.ID, at(k.Created), keyState(k)})
					}
					return table(w, "KEY\tCREATED\tSTATE", rows)
				})
		},
	}
}

func keyState(k client.VaultKey) string {
	switch {
	case k.Missing:
		return "missing"
	case k.Seals:
		return "seals"
	case !k.Retired.IsZero():
		return "retired " + at(k.Retired)
	}
	return "opens"
}

// metadataText is metadata on one line.
func metadataText(m map[string]string) string {
	var s string
	for _, k := range sortedKeys(m) {
		if s != "" {
			s += " "
		}
		s += k + "=" + strconv.Quote(m[k])
	}
	return s
}
