package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func (r *Runtime) isV2() bool { return r.opts.Version == cgroup.V2 }

// qosDir returns the cgroup directory of a QoS class, with the name that the kubelet gives it.
func (r *Runtime) qosDir(qos string) string {
	name := ""
	switch qos {
	case "Burstable":
		name = "burstable"
	case "BestEffort":
		name = "besteffort"
	}
	if r.opts.Driver == Systemd {
		if name == "" {
			return "kubepods.slice"
		}
		return "kubepods.slice/kubepods-" + name + ".slice"
	}
	return path.Join("kubepods", name)
}

// podDir returns the cgroup directory of a pod.
func (r *Runtime) podDir(qos, uid string) string {
	above := r.qosDir(qos)
	if r.opts.Driver == Systemd {
		unit := strings.TrimSuffix(path.Base(above), ".slice") + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		return path.Join(above, unit)
	}
	return path.Join(above, "pod"+uid)
}

// cgroupsPath returns a container's OCI cgroupsPath in the notation of the cgroup driver.
func (r *Runtime) cgroupsPath(podDir, id string) string {
	if r.opts.Driver == Systemd {
		return path.Base(podDir) + ":cri-containerd:" + id
	}
	return "/" + path.Join(podDir, id)
}

// cgroupWrite is a write of a text to a cgroup file. In cgroup version 1, controller is the hierarchy of the file.
type cgroupWrite struct{ controller, file, text string }

// podWrites returns the writes by which the kubelet sets the resources of a pod's cgroup.
func (r *Runtime) podWrites(res scenario.Resources) []cgroupWrite {
	return r.ociWrites(toOCI(res))
}

// ociWrites returns the writes by which runc sets OCI resources. It converts shares to a weight as runc up to 1.3 does
// (effective.Weight).
func (r *Runtime) ociWrites(res *specs.LinuxResources) []cgroupWrite {
	if res == nil {
		return nil
	}
	var out []cgroupWrite
	add := func(controller, file, text string) { out = append(out, cgroupWrite{controller, file, text}) }
	if c := res.CPU; c != nil {
		if c.Cpus != "" {
			add("cpuset", "cpuset.cpus", c.Cpus)
		}
		if c.Mems != "" {
			add("cpuset", "cpuset.mems", c.Mems)
		}
		if c.Shares != nil && *c.Shares != 0 {
			if r.isV2() {
				add("cpu", "cpu.weight", strconv.FormatUint(effective.Weight(*c.Shares), 10))
			} else {
				add("cpu", "cpu.shares", strconv.FormatUint(*c.Shares, 10))
			}
		}
		out = append(out, r.bandwidthWrites(c)...)
	}
	if m := res.Memory; m != nil && deref(m.Limit) != 0 {
		out = append(out, r.memoryWrite(*m.Limit))
	}
	for _, h := range res.HugepageLimits {
		file := "hugetlb." + h.Pagesize + ".limit_in_bytes"
		if r.isV2() {
			file = "hugetlb." + h.Pagesize + ".max"
		}
		add("hugetlb", file, strconv.FormatUint(h.Limit, 10))
	}
	for _, key := range slices.Sorted(maps.Keys(res.Unified)) {
		add("unified", key, res.Unified[key])
	}
	return out
}

// memoryWrite returns the write of a memory limit.
func (r *Runtime) memoryWrite(limit int64) cgroupWrite {
	text := strconv.FormatInt(limit, 10)
	switch {
	case !r.isV2():
		return cgroupWrite{"memory", "memory.limit_in_bytes", text}
	case limit < 0:
		text = "max"
	}
	return cgroupWrite{"memory", "memory.max", text}
}

// bandwidthWrites returns the writes of CPU quota and period.
func (r *Runtime) bandwidthWrites(c *specs.LinuxCPU) []cgroupWrite {
	quota, period := deref(c.Quota), deref(c.Period)
	if r.isV2() {
		if quota == 0 && period == 0 {
			return nil
		}
		text := "max"
		if quota > 0 {
			text = strconv.FormatInt(quota, 10)
		}
		if period == 0 {
			period = 100000
		}
		return []cgroupWrite{{"cpu", "cpu.max", text + " " + strconv.FormatUint(period, 10)}}
	}
	var out []cgroupWrite
	if period != 0 {
		out = append(out, cgroupWrite{"cpu", "cpu.cfs_period_us", strconv.FormatUint(period, 10)})
	}
	if quota != 0 {
		out = append(out, cgroupWrite{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)})
	}
	return out
}

// applyWrites makes the writes in the cgroup dir. Like runc, it stops at the first error.
func (r *Runtime) applyWrites(dir string, writes []cgroupWrite) error {
	for _, w := range writes {
		file := path.Join(dir, w.file)
		switch {
		case r.isV2():
		case w.controller == "unified":
			return fmt.Errorf("write %s: the node has no cgroup version 2", w.file)
		default:
			file = path.Join(w.controller, dir, w.file)
		}
		if err := r.opts.Kernel.WriteFile(file, []byte(w.text)); err != nil {
			return fmt.Errorf("write %q: %w", w.text, err)
		}
	}
	return nil
}

// File reads a file of a container's or pod's cgroup. The parameter name is the file's name in cgroup version 2, also
// on a node with version 1. The error wraps errors.ErrUnsupported if the node's cgroup version lacks the file.
func (r *Runtime) File(ref scenario.Ref, name string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := ""
	if p := r.pods[ref]; p != nil {
		dir = p.dir
	} else if c := r.containers[ref]; c != nil {
		dir = c.dir
	}
	file := path.Join(dir, name)
	if !r.isV2() {
		old := effective.V1Name(name)
		controller, _, _ := strings.Cut(old, ".")
		file = path.Join(controller, dir, old)
	}
	data, err := r.opts.Kernel.ReadFile(file)
	if _, none := cgroup.FeatureFile(name, r.opts.Version); errors.Is(err, fs.ErrNotExist) && errors.Is(none, errors.ErrUnsupported) {
		return "", none
	}
	return effective.FileText(data), err
}

// IOLimit returns a container's effective limit for a disk and direction, such as "8:0 rbps"; -1 for no limit. In
// cgroup version 2, this is the lowest limit of the container's cgroup and its ancestors.
func (r *Runtime) IOLimit(ref scenario.Ref, diskAndDirection string) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil {
		return 0, fmt.Errorf("container %s does not exist", ref)
	}
	disk, direction, _ := strings.Cut(diskAndDirection, " ")
	limit := int64(-1)
	for dir := c.dir; dir != "."; dir = path.Dir(dir) {
		file, prefix := path.Join(dir, "io.max"), direction+"="
		if !r.isV2() {
			file, prefix = path.Join("blkio", dir, throttleFiles[direction]), ""
		}
		text, err := r.opts.Kernel.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			rest, ours := strings.CutPrefix(line, disk+" ")
			for entry := range strings.FieldsSeq(rest) {
				n, err := strconv.ParseInt(strings.TrimPrefix(entry, prefix), 10, 64)
				if ours && err == nil && (limit < 0 || n < limit) {
					limit = n
				}
			}
		}
		if !r.isV2() {
			break
		}
	}
	return limit, nil
}

// throttleFiles has the files of cgroup version 1 that correspond to the keys in io.max of version 2.
var throttleFiles = map[string]string{
	"rbps": "blkio.throttle.read_bps_device", "wbps": "blkio.throttle.write_bps_device",
	"riops": "blkio.throttle.read_iops_device", "wiops": "blkio.throttle.write_iops_device",
}

// makeContainer makes a container's cgroup, sets the resources, and puts one task into the cgroup.
func (r *Runtime) makeContainer(dir string, res *specs.LinuxResources) error {
	if err := r.opts.Kernel.MkdirRunc(dir); err != nil {
		return err
	}
	err := r.applyWrites(dir, r.ociWrites(res))
	if err == nil {
		err = r.opts.Kernel.SetTasks(dir, 1)
	}
	if err != nil {
		return errors.Join(err, r.removeCgroup(dir))
	}
	return nil
}

// removeCgroup ends the tasks in a cgroup and removes the cgroup.
func (r *Runtime) removeCgroup(dir string) error {
	return errors.Join(r.opts.Kernel.SetTasks(dir, 0), r.opts.Kernel.Rmdir(dir))
}

// deref returns the value of a pointer; zero for nil.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
