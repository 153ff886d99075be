package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/client"
)

type setFlags struct {
	title                string
	tags, metadata, drop []string
	noTags               bool
}

func newSet() *cobra.Command {
	var f setFlags
	cmd := &cobra.Command{
		Use:   "set SESSION",
		Short: "Change a session's title, tags and metadata",
		Long: `Change what people say about a session. What is not named stays as it is: tags are
replaced all at once, metadata key by key. A session that has ended can still be
described.`,
		Example: `  dormouse session set sesn_… --title 'fix the build'
  dormouse session set sesn_… --tag ci --tag urgent --metadata pr=42
  dormouse session set sesn_… --no-tags --drop-metadata pr`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd)
			if err != nil {
				return err
			}
			return command(cmd, func(ctx context.Context, c *client.Client) (client.Row, error) {
				return c.Describe(ctx, dormouse.SessionID(args[0]), o)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.title, "title", "", "title shown to people; an empty one takes it away")
	fs.StringArrayVar(&f.tags, "tag", nil, "`tag` it has from now on; may be given again")
	fs.BoolVar(&f.noTags, "no-tags", false, "take all tags away")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "`key=value` to set; may be given again")
	fs.StringArrayVar(&f.drop, "drop-metadata", nil, "`key` to take away; may be given again")
	return cmd
}

// options are what is to change.
func (f setFlags) options(cmd *cobra.Command) (o client.DescribeOptions, err error) {
	if cmd.Flags().Changed("title") {
		o.Title = &f.title
	}
	switch {
	case f.noTags && len(f.tags) > 0:
		return o, usage("--tag and --no-tags contradict each other")
	case f.noTags:
		o.Tags = &[]string{}
	case len(f.tags) > 0:
		o.Tags = &f.tags
	}
	set, err := pairs("metadata", f.metadata)
	if err != nil {
		return o, err
	}
	o.Metadata = make(map[string]*string)
	for key, value := range set {
		o.Metadata[key] = &value
	}
	for _, key := range f.drop {
		if o.Metadata[key] != nil {
			return o, usage("%q is both set and dropped", key)
		}
		o.Metadata[key] = nil
	}
	if o.Title == nil && o.Tags == nil && len(o.Metadata) == 0 {
		return o, usage("give something to change: --title, --tag, --no-tags, --metadata or --drop-metadata")
	}
	return o, nil
}
