package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/internal/atomicfile"
)

func newSnapshotExport() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "export SESSION SNAPSHOT FILE",
		Short: "Write a snapshot as a container image",
		Long: `Write a snapshot as a container image in one tar, which "docker load" takes and which is an
OCI layout. The workspace is the root of the image. FILE - is standard output.`,
		Example: `  dormouse snapshot export sesn_… snap_… workspace.tar
  dormouse snapshot export sesn_… snap_… - --name workspace:1 | docker load`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[2] == "-" && isTerminal(cmd.OutOrStdout()) {
				return usage("a tar is nothing for a terminal; name a file")
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			image, err := c.ExportSnapshot(cmd.Context(), dormouse.SessionID(args[0]), dormouse.SnapshotID(args[1]), name)
			if err != nil {
				return err
			}
			defer func() { _ = image.Close() }()
			k := &copying{cmd: cmd, client: c, progress: newProgress(cmd.ErrOrStderr())}
			k.progress.last = time.Now()
			body := io.TeeReader(image, k)
			if args[2] == "-" {
				_, err = io.Copy(cmd.OutOrStdout(), body)
			} else {
				err = atomicfile.WritePart(args[2], func(w io.Writer) error { _, err := io.Copy(w, body); return err })
			}
			if k.shows() {
				k.progress.done()
			}
			if err != nil {
				return fmt.Errorf("export %s: %w", args[1], err)
			}
			if args[2] == "-" {
				return nil
			}
			raw := fmt.Appendf(nil, "{\"file\":%q,\"bytes\":%d}\n", args[2], k.moved)
			return printed(cmd, raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s: %s\n", args[2], size(k.moved))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the image is `called` where it is loaded, such as workspace:1")
	return cmd
}
