package main

import (
	"net/http"

	"github.com/spf13/cobra"
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
			in, err := f.request(cmd)
			if err != nil {
				return err
			}
			return request(cmd, http.MethodPatch, sessionPath(args[0]), in)
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

// request is a merge patch: what is null goes.
func (f setFlags) request(cmd *cobra.Command) (map[string]any, error) {
	in := make(map[string]any)
	if cmd.Flags().Changed("title") {
		in["title"] = f.title
	}
	switch {
	case f.noTags && len(f.tags) > 0:
		return nil, usage("--tag and --no-tags contradict each other")
	case f.noTags:
		in["tags"] = nil
	case len(f.tags) > 0:
		in["tags"] = f.tags
	}
	set, err := pairs("metadata", f.metadata)
	if err != nil {
		return nil, err
	}
	metadata := make(map[string]any)
	for key, value := range set {
		metadata[key] = value
	}
	for _, key := range f.drop {
		if _, ok := metadata[key]; ok {
			return nil, usage("%q is both set and dropped", key)
		}
		metadata[key] = nil
	}
	if len(metadata) > 0 {
		in["metadata"] = metadata
	}
	if len(in) == 0 {
		return nil, usage("give something to change: --title, --tag, --no-tags, --metadata or --drop-metadata")
	}
	return in, nil
}
