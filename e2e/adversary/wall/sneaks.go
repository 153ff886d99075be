//go:build linux

package wall

import (
	"context"
	"strings"
	"time"
)

// script runs a command in the sandbox and then has the server do everything it does
// with one. Words in braces are the bait.
func script(command string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		within, cancel := context.WithTimeout(ctx, t.of(30*time.Second))
		defer cancel()
		command := strings.NewReplacer("{FILE}", quote(t.bait.file), "{DIR}", quote(t.bait.dir), "{SOCKET}", quote(t.bait.socket)).Replace(command)
		d, err := t.run(within, t.session, command)
		t.note("%s", oneLine(d.Output+d.Error))
		if err != nil {
			t.note("%v", err)
		}
		t.everything(ctx)
		return nil
	}
}

// everything goes through all occasions but the last.
func (t *trial) everything(ctx context.Context) {
	for _, o := range []occasion{turnEnd, attach, snapshot, branch, hibernate, wake, restart} {
		if t.died != "" || t.life.Gone() {
			return
		}
		t.meet(ctx, o, "/workspace")
	}
}

// places are the files of the runner, as a shell's list: where they were once, and where
// they are.
const places = "/.dormouse/run/state/fence.json /.dormouse/run/state/log /.dormouse/run/state/ops /.dormouse/run/secret /.dormouse/run/x $(find /.dormouse -path /.dormouse/bin -prune -o -path '/.dormouse/slot/*' -prune -o -type f -print)"

// sneaks reach the same files by other ways, or replace them by other kinds of files.
func sneaks() []Case {
	return []Case{
		{Name: "by-proc-root", Tries: "the runner's files by way of /proc/1/root", play: script(
			`for f in ` + places + `; do ln -sfn {FILE} /proc/1/root$f 2>&1; ln -sfn {FILE} /proc/self/root$f 2>&1; done; ls -l /.dormouse/run`)},
		{Name: "by-proc-cwd", Tries: "the runner's files by way of /proc/1/cwd", play: script(
			`for f in ` + places + `; do ln -sfn {FILE} /proc/1/cwd$f 2>&1; done; cd /.dormouse/run && for p in /proc/[0-9]*; do ln -sfn {FILE} $p/cwd/y 2>&1; done; true`)},
		{Name: "by-proc-fd", Tries: "whatever the runner has open", play: script(
			`for f in /proc/1/fd/* /proc/1/task/*/fd/*; do ln -sfn {FILE} $f/y; (timeout 1 echo '{"epoch":9223372036854775807}' >$f); timeout 1 truncate -s 64G $f; done 2>&1 | head -5; true`)},
		{Name: "remounted", Tries: "mounting over the runner's files, and away", play: script(
			`for m in /.dormouse/run /.dormouse/slot /.dormouse/bin /workspace /tmp; do mount -o remount,rw $m; mount --bind /root $m; mount -t tmpfs t $m; umount -l $m; done 2>&1 | tail -3
unshare -Urm sh -c 'mount --bind /root /.dormouse/run && rm -rf /.dormouse/run/*; umount -l /.dormouse/run; ln -sfn {FILE} /.dormouse/run/state/log' 2>&1`)},
		{Name: "parent-is-a-link", Tries: "a link to the host in the place of the runner's directory", play: script(
			`mv /.dormouse/run/state /.dormouse/run/old; ln -sfn {DIR} /.dormouse/run/state; ls -l /.dormouse/run 2>&1`)},
		{Name: "parents-renamed", Tries: "renaming every directory above the runner's files", play: script(
			`for d in /.dormouse/run/state /.dormouse/run /.dormouse/slot/ws /.dormouse/slot /.dormouse/shells /.dormouse; do mv $d $d.moved && ln -sfn {DIR} $d; done 2>&1; ls -la / /.dormouse* 2>&1 | tail -5`)},
		{Name: "hard-links", Tries: "hard links between the runner's files and the workspace's", play: script(
			`for f in ` + places + `; do ln $f /workspace/h$(basename $f); ln -f /workspace/hard $f; ln /.dormouse/run/secret $f.l; done 2>&1 | tail -3; echo '{"epoch":9223372036854775807}' >/.dormouse/run/state/fence.json; true`)},
		{Name: "deep-directories", Tries: "directories within one another, deeper than a path can name", play: script(
			`deep() { mkdir -p $1 && cd $1 && i=0 && while [ $i -lt 400 ] && mkdir dddddddddd && cd dddddddddd; do i=$((i+1)); done; echo $i; }
(deep /.dormouse/run/state/tasks/deep); (deep /.dormouse/slot/deep); (deep /workspace/deep); (deep /tmp/deep) 2>&1`)},
		{Name: "names", Tries: "names with line feeds, colours and 255 bytes", play: script(
			`long=$(printf 'n%.0s' $(seq 255)); for d in /.dormouse/run /.dormouse/run/state /.dormouse/slot /workspace /root /tmp; do
touch "$d/$(printf '\033[2J\nlevel=ERROR msg=FORGED')" "$d/$(printf '\377\376')" "$d/$long" "$d/-rf" "$d/ "; ln -s {FILE} "$d/$(printf 'l\nl')"; done 2>&1 | tail -3; ls /.dormouse/run | head -3`)},
		{Name: "directories-as-files", Tries: "a directory where each file is expected", play: script(
			`for f in ` + places + ` /.dormouse/run/state/fence.json.new /.dormouse/run/outlet /.dormouse/run/bell /.dormouse/run/socket; do rm -rf $f; mkdir -p $f/in; done 2>&1; ls -la /.dormouse/run /.dormouse/run/state 2>&1 | tail -4`)},
		{Name: "files-as-directories", Tries: "a file, a link and a loop where each directory is expected", play: script(
			`for d in /.dormouse/run/state/tasks /.dormouse/run/state/output /tmp/dormouse /.dormouse/shells; do rm -rf $d; echo x >$d; done; rm -rf /.dormouse/slot/*; ln -sfn /.dormouse/run/loop /.dormouse/run/loop; ln -sfn loop /workspace/loop; rm -rf /.dormouse/run/state; ln -sfn state /.dormouse/run/state; ls -la /.dormouse/run 2>&1`)},
		{Name: "relative-links", Tries: "links that climb out by their own names", play: script(
			`up=../../../../../../../../../../../..; for f in ` + places + `; do ln -sfn $up{FILE} $f; done; ln -sfn $up{FILE} /workspace/up; ln -sfn $up /tmp/dormouse; ls -la /.dormouse/run /workspace 2>&1 | tail -4`)},
		{Name: "everything-removed", Tries: "removing all that can be", play: script(
			`rm -rf --no-preserve-root /.dormouse /workspace /root /tmp 2>&1 | tail -2; ls -la /.dormouse 2>&1`)},
	}
}
