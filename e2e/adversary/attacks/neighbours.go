package attacks

import (
	"context"
	"fmt"
	"strings"
)

func neighbours() []Case {
	return []Case{
		{"other-sessions", "files and names of other sessions", otherSessions},
		{"other-processes", "processes, sockets and memory of other sessions", otherProcesses},
	}
}

func otherSessions(ctx context.Context, w *World) (string, error) {
	if _, err := w.Neighbour.Do(ctx, "for d in /workspace /root /tmp /var /dev/shm; do echo "+w.Secret+" >$d/private; done"); err != nil {
		return "", err
	}
	return secret(`find / -xdev -name private 2>/dev/null | xargs -r cat; cat /proc/*/root/workspace/private /.dormouse/slot/*/private /.dormouse/slot/../*/slot/ws/private 2>/dev/null
ls -d /.dormouse/* /workspace /root/* 2>/dev/null`)(ctx, w)
}

func otherProcesses(ctx context.Context, w *World) (string, error) {
	if _, err := w.Neighbour.Do(ctx, "(exec -a "+w.Secret+" sleep 100) >/dev/null 2>&1 & /usr/bin/python3 -c 'import socket,time,os\ns=socket.socket();s.bind((\"127.0.0.1\",9999));s.listen();os.fork() and os._exit(0);time.sleep(100)' >/dev/null 2>&1"); err != nil {
		return "", err
	}
	seen, err := secret(`cat /proc/*/cmdline | tr '\0' ' '; ipcs 2>/dev/null | grep -c 0x; (exec 3<>/dev/tcp/127.0.0.1/9999 && echo CONN''ECTED) 2>&1`)(ctx, w)
	if err == nil && strings.Contains(seen, "CONNECTED") {
		err = fmt.Errorf("it reached a port of another session: %s", oneLine(seen))
	}
	return seen, err
}
