#!/bin/bash
# Runs in the machine. What begins with "vm-" is for whoever counts.
set -u
. /programs/settings
export PATH=/programs:$PATH HOME=/root LANG=C.UTF-8
cd /root || exit 1

echo "vm-kernel: $(uname -r)"
case $(stat -fc %T /sys/fs/cgroup) in
cgroup2fs) echo "vm-cgroup: 2" ;;
*) echo "vm-cgroup: 1" ;;
esac

for step in $STEPS; do
	began=$SECONDS
	case $step in
	doctor) dormouse doctor --data /root/data ;;
	demo) dormouse demo ;;
	limits)
		DORMOUSE_TEST_PROGRAMS=/programs DORMOUSE_TEST_SLOW=$SLOW limits.test -test.v -test.timeout 40m -test.run "$TESTS"
		;;
	wall) attacks -binary /programs/dormouse -impostor /programs/impostor -section wall -sample 20 -slow "$SLOW" ;;
	esac
	echo "vm-step: $step $? $((SECONDS - began))"
done
echo "vm-done"
