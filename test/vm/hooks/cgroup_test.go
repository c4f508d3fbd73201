package hooks_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
)

const root = "/sys/fs/cgroup"

// v1Controllers are the hierarchies whose files the tests read.
var v1Controllers = []string{"cpuset", "cpu", "memory", "hugetlb"}

// dirs returns a cgroup's directories in the guest.
func (n *machine) dirs(dir string) []string {
	if !n.m.Guest.CgroupV1 {
		return []string{path.Join(root, dir)}
	}
	var all []string
	for _, c := range v1Controllers {
		all = append(all, path.Join(root, c, dir))
	}
	return all
}

// cgroup returns the effective state of a cgroup, and its files.
func (n *machine) cgroup(dir string) (effective.State, vm.Files, error) {
	var all []string
	for _, d := range n.dirs(dir) {
		all = append(all, below(d)...)
	}
	files, err := n.m.Files(all...)
	if err != nil {
		return effective.State{}, nil, err
	}
	named := vm.Files{}
	for at, b := range files {
		named[path.Base(at)] = b
	}
	s, err := effective.ReadCgroup(rooted(files), !n.m.Guest.CgroupV1, dir)
	return s, named, err
}

// below returns the files to read. All files of a cgroup would take ten times as long.
func below(dir string) []string {
	var all []string
	for _, name := range []string{
		"cpuset.cpus", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.mems", "cpuset.mems.effective", "cpuset.effective_mems",
		"cpu.weight", "cpu.shares", "cpu.max", "cpu.max.burst", "cpu.idle", "cpu.cfs_quota_us", "cpu.cfs_period_us",
		"memory.max", "memory.limit_in_bytes", "memory.high", "memory.low", "memory.min", "memory.oom.group",
		"io.weight", "hugetlb.2MB.max", "hugetlb.1GB.max", "cgroup.procs",
		"cpu.cfs_burst_us", "hugetlb.2MB.limit_in_bytes", "hugetlb.1GB.limit_in_bytes",
	} {
		all = append(all, path.Join(dir, name))
	}
	return all
}

// file returns the text of a file by its name in version 2; has is false if only the other version has the file.
func (n *machine) file(files vm.Files, name string) (text string, has bool) {
	if n.m.Guest.CgroupV1 {
		if _, err := cgroup.FeatureFile(name, cgroup.V1); errors.Is(err, errors.ErrUnsupported) {
			return "", false
		}
		name = effective.V1Name(name)
	}
	return effective.FileText(files[name]), true
}

// rooted reads paths relative to the mount point of the hierarchies.
type rooted vm.Files

func (r rooted) ReadFile(name string) ([]byte, error) {
	return vm.Files(r).ReadFile(path.Join(root, name))
}

// seen has the cgroup files that a container saw at its start.
type seen map[string]string

func (s seen) ReadFile(name string) ([]byte, error) {
	text, ok := s[path.Base(name)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

// makePod makes the pod's cgroup, as a kubelet does before it calls the runtime.
func (n *machine) makePod(dir string, res scenario.Resources) error {
	if n.m.Guest.Systemd {
		return n.sh("systemctl start " + path.Base(dir) + "\n" + n.podScript(dir, res))
	}
	var s strings.Builder
	for _, top := range n.tops() {
		at := top
		for part := range strings.SplitSeq(dir, "/") {
			up := at
			at = path.Join(at, part)
			if !n.m.Guest.CgroupV1 {
				fmt.Fprintf(&s, "for c in $(cat %[1]s/cgroup.controllers); do echo +$c >%[1]s/cgroup.subtree_control; done\n", up)
			}
			fmt.Fprintf(&s, "[ -d %[1]s ] || mkdir %[1]s\n", at)
			if path.Base(top) == "cpuset" { // in version 1 a new cpuset is empty
				fmt.Fprintf(&s, "for f in cpuset.cpus cpuset.mems; do [ -n \"$(cat %[2]s/$f)\" ] || cat %[1]s/$f >%[2]s/$f; done\n", up, at)
			}
		}
	}
	return n.sh(s.String() + n.podScript(dir, res))
}

// tops returns the roots of the hierarchies.
func (n *machine) tops() []string {
	if !n.m.Guest.CgroupV1 {
		return []string{root}
	}
	var all []string
	for _, c := range []string{"cpuset", "cpu", "memory", "pids", "devices", "freezer", "blkio", "hugetlb", "systemd"} {
		all = append(all, path.Join(root, c))
	}
	return all
}

// podScript returns a script that writes a pod's own resources.
func (n *machine) podScript(dir string, res scenario.Resources) string {
	var s strings.Builder
	write := func(controller, file, text string) {
		at := path.Join(root, dir, file)
		if n.m.Guest.CgroupV1 {
			at = path.Join(root, controller, dir, file)
		}
		fmt.Fprintf(&s, "echo %s >%s\n", text, at)
	}
	period := uint64(100_000)
	if res.Period != nil {
		period = *res.Period
	}
	switch {
	case n.m.Guest.Systemd:
		return n.podProperties(dir, res)
	case n.m.Guest.CgroupV1:
		if res.Shares != nil {
			write("cpu", "cpu.shares", fmt.Sprint(*res.Shares))
		}
		if res.Quota != nil {
			write("cpu", "cpu.cfs_period_us", fmt.Sprint(period))
			write("cpu", "cpu.cfs_quota_us", fmt.Sprint(*res.Quota))
		}
		if res.Memory != nil {
			write("memory", "memory.limit_in_bytes", fmt.Sprint(*res.Memory))
		}
	default:
		if res.Shares != nil {
			write("", "cpu.weight", fmt.Sprint(effective.Weight(*res.Shares)))
		}
		if res.Quota != nil {
			write("", "cpu.max", strings.Replace(fmt.Sprintf("%d %d", *res.Quota, period), "-1", "max", 1))
		}
		if res.Memory != nil {
			write("", "memory.max", strings.Replace(fmt.Sprint(*res.Memory), "-1", "max", 1))
		}
	}
	return s.String()
}

// podProperties sets the resources as properties of the systemd unit; otherwise systemd would write its old values
// again.
func (n *machine) podProperties(dir string, res scenario.Resources) string {
	var properties []string
	if res.Shares != nil {
		properties = append(properties, fmt.Sprintf("CPUWeight=%d", effective.Weight(*res.Shares)))
	}
	if res.Quota != nil && *res.Quota > 0 {
		properties = append(properties, fmt.Sprintf("CPUQuota=%d%%", *res.Quota/1000))
	}
	if res.Memory != nil && *res.Memory > 0 {
		properties = append(properties, fmt.Sprintf("MemoryMax=%d", *res.Memory))
	}
	if len(properties) == 0 {
		return ""
	}
	return "systemctl set-property --runtime " + path.Base(dir) + " " + strings.Join(properties, " ") + "\n"
}

// removePod removes the pod's cgroup, as a kubelet does after a pod.
func (n *machine) removePod(dir string) error {
	if n.m.Guest.Systemd {
		return n.sh("systemctl stop " + path.Base(dir))
	}
	var s strings.Builder
	for _, top := range n.tops() {
		// The cgroup of a container that has just ended may exist for a moment.
		fmt.Fprintf(&s, "i=0; while [ -d %[1]s ] && ! rmdir %[1]s 2>/dev/null; do rmdir %[1]s/* 2>/dev/null; i=$((i+1)); [ $i -lt 50 ]; sleep 0.1; done\n", path.Join(top, dir))
	}
	return n.sh(s.String())
}

func (n *machine) sh(script string) error {
	ctx, cancel := call()
	defer cancel()
	r, err := n.m.Exec(ctx, "/bin/sh", "-ec", script)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s%s (exit %d) of\n%s", r.Stderr, r.Err, r.Code, script)
	}
	return err
}
