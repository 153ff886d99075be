package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dormouse-run/dormouse"
)

func newEvents() *cobra.Command {
	var after uint64
	var limit int
	var all bool
	cmd := &cobra.Command{
		Use:   "events SESSION",
		Short: "Print a session's history",
		Long:  "Print a session's events from a cursor on and end. \"follow\" goes on.",
		Example: `  dormouse session events sesn_…
  dormouse session events sesn_… --all --json | jq .`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			for left := limit; left > 0; {
				q := url.Values{"after": {strconv.FormatUint(after, 10)}, "limit": {strconv.Itoa(min(left, 1000))}, "all": {strconv.FormatBool(all)}}
				var page struct {
					Events []json.RawMessage `json:"events"`
					Next   uint64            `json:"next"`
					More   bool              `json:"more"`
				}
				if _, err := c.call(cmd.Context(), http.MethodGet, sessionPath(args[0], "events")+"?"+q.Encode(), nil, &page); err != nil {
					return err
				}
				for _, raw := range page.Events {
					if err := printed(cmd, append(raw, '\n'), func(w io.Writer) error { return eventLine(w, raw) }); err != nil {
						return err
					}
				}
				if left -= len(page.Events); !page.More {
					return nil
				}
				after = page.Next
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "last `event` already seen")
	cmd.Flags().IntVar(&limit, "limit", 1000, "how many")
	cmd.Flags().BoolVar(&all, "all", false, "print the server's bookkeeping as well")
	return cmd
}

// eventLine prints one event as one line.
func eventLine(w io.Writer, raw json.RawMessage) error {
	var e dormouse.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	_, err := io.WriteString(w, strconv.FormatUint(e.Seq, 10)+"\t"+e.Time.Local().Format("15:04:05.000")+"\t"+string(e.Type)+"\t"+compactJSON(e.Payload)+"\n")
	return err
}
