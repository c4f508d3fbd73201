package qrm

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Limits of one answer. They are needed because the agent copies the whole answer into the request to the runtime and
// into an annotation of the container.
const (
	maxEntries = 256      // variables, annotations, mounts or devices
	maxBytes   = 32 << 10 // bytes of all texts together
)

// reservedAnnotationPrefix is the prefix of annotations that no answer may set. The agent stores its own decisions in
// these annotations.
const reservedAnnotationPrefix = "trimtab.io/record"

// answerValues collects the values of one plugin's answer.
type answerValues struct {
	plugin       string
	devDirectory string // the directory with the node's device nodes
	textBytes    int    // the size of the keys and texts of the values so far
	values       []lifecycle.Value
	problems     lifecycle.ProblemList
}

// valuesOf converts a plugin's allocation to values. It leaves out the invalid parts of the allocation and returns a
// problem for each. devDirectory is the directory with the node's device nodes.
func valuesOf(devDirectory, resource string, allocation *api.ResourceAllocation) ([]lifecycle.Value, []lifecycle.Problem) {
	a := answerValues{plugin: resource, devDirectory: devDirectory}
	all := allocation.GetResourceAllocation()
	if len(all) > maxPlugins {
		a.addProblem("resource_allocation", resource, fmt.Sprintf("has %d resources: the agent reads at most %d", len(all), maxPlugins))
		return nil, a.problems.List()
	}
	for _, name := range sortedKeys(all) {
		info := all[name]
		q := info.GetAllocatedQuantity()
		switch {
		case info == nil: // Katalyst's own manager also ignores such an entry
		case !isResourceName(name):
			a.addProblem("resource_allocation", name, "is not the name of a resource")
		case math.IsNaN(q) || math.IsInf(q, 0) || q < 0:
			a.addProblem(name+" allocated_quantity", fmt.Sprint(q), "is not an amount of a resource")
		case max(len(info.GetEnvs()), len(info.GetAnnotations()), len(info.GetMounts()), len(info.GetDevices())) > maxEntries:
			a.addProblem(name, resource, fmt.Sprintf("has more than %d variables, annotations, mounts or devices", maxEntries))
		default:
			a.addResource(name, info)
		}
	}
	return a.values, a.problems.List()
}

// addProblem reports an invalid part of the answer.
func (a *answerValues) addProblem(field, value, reason string) {
	a.problems.Add(lifecycle.Problem{
		Hook: lifecycle.ResourcePluginName, Key: a.plugin + ": " + shorten(field), Value: shorten(value), Reason: reason, Then: "the agent ignores this part of the answer",
	})
}

// addValue adds a value. If the answer is too long, or has two values for one setting, addValue reports a problem
// instead.
func (a *answerValues) addValue(v lifecycle.Value, resource string) {
	if a.textBytes += len(v.Key) + len(v.Text); a.textBytes > maxBytes {
		a.addProblem(resource, v.Setting(), fmt.Sprintf("the answer has more than %d bytes", maxBytes))
		return
	}
	if slices.ContainsFunc(a.values, func(o lifecycle.Value) bool { return o.Field == v.Field && o.Key == v.Key }) {
		a.addProblem(resource, v.Setting(), "the answer has two values for this setting")
		return
	}
	v.Why = lifecycle.Reason{Hook: lifecycle.ResourcePluginName, Source: a.plugin, Text: "allocated " + resource}
	a.values = append(a.values, v)
}

// addResource adds the values of one resource.
func (a *answerValues) addResource(resource string, info *api.ResourceAllocationInfo) {
	a.addProperty(resource, info.GetOciPropertyName(), info.GetAllocationResult())
	for _, k := range slices.Sorted(maps.Keys(info.GetEnvs())) {
		v := info.GetEnvs()[k]
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			a.addProblem(resource+" envs", k, "is not the name or value of a variable")
			continue
		}
		a.addValue(lifecycle.Value{Field: lifecycle.Env, Key: k, Text: v}, resource)
	}
	for _, k := range slices.Sorted(maps.Keys(info.GetAnnotations())) {
		v := info.GetAnnotations()[k]
		switch {
		case k == "" || strings.IndexByte(k+v, 0) >= 0:
			a.addProblem(resource+" annotations", k, "is not the key or value of an annotation")
		case strings.HasPrefix(k, reservedAnnotationPrefix):
			a.addProblem(resource+" annotations", k, "is reserved for the agent")
		default:
			a.addValue(lifecycle.Value{Field: lifecycle.Annotation, Key: k, Text: v}, resource)
		}
	}
	for _, m := range info.GetMounts() {
		a.addMount(resource, m)
	}
	for _, d := range info.GetDevices() {
		a.addDevice(resource, d)
	}
}

// addProperty adds the value of an OCI property. A name with a dot is the name of a cgroup v2 file: Katalyst's memory
// plugin sends such names.
func (a *answerValues) addProperty(resource, name, text string) {
	switch name {
	case "":
	case "CpusetCpus", "CpusetMems":
		field := lifecycle.CPUSetCPUs
		if name == "CpusetMems" {
			field = lifecycle.CPUSetMems
		}
		ids, err := topology.ParseList(text)
		switch {
		case err != nil:
			a.addProblem(resource+" "+name, text, err.Error())
		case len(ids) > 0: // an empty list means that the plugin has not decided yet, as for sidecars before the main container
			a.addValue(lifecycle.Value{Field: field, Text: topology.FormatList(ids)}, resource)
		}
	case "MemoryLimitInBytes":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			a.addProblem(resource+" "+name, text, "is not a limit in bytes")
			return
		}
		a.addValue(lifecycle.Value{Field: lifecycle.MemoryLimit, Int: n}, resource)
	default:
		a.addFile(resource, name, text)
	}
}

// addFile adds the text of a cgroup v2 file.
func (a *answerValues) addFile(resource, name, text string) {
	controller, _, isFile := strings.Cut(name, ".")
	switch {
	case !isFile || controller == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
		a.addProblem(resource+" oci_property_name", name, "is not a property that a plugin can set")
	case controller == "cpuset" || controller == "cgroup" || name == "cpu.max" || name == "cpu.weight" || name == "memory.max":
		a.addProblem(resource+" oci_property_name", name, "is not allowed: this file could take resources from other containers, or another property sets it")
	case text == "" || len(text) > maxBytes/8 || strings.IndexByte(text, 0) >= 0:
		a.addProblem(resource+" "+name, text, "is a value that no cgroup file accepts")
	default:
		a.addValue(lifecycle.Value{Field: lifecycle.Unified, Key: name, Text: text}, resource)
	}
}

// addMount adds a mount with the options that the kubelet uses for device plugins.
func (a *answerValues) addMount(resource string, m *api.Mount) {
	to, from := m.GetContainerPath(), m.GetHostPath()
	if why := whyBadPath(to, from); why != "" {
		a.addProblem(resource+" mounts", from+" -> "+to, why)
		return
	}
	if _, err := os.Stat(from); err != nil { //nolint:gosec // a trusted plugin names it
		a.addProblem(resource+" mounts", from, "cannot be mounted: "+err.Error())
		return
	}
	options := []string{"rbind", "rprivate", "rw"}
	if m.GetReadOnly() {
		options[2] = "ro"
	}
	to = path.Clean(to)
	a.addValue(lifecycle.Value{
		Field: lifecycle.MountPoint, Key: to, Mount: &lifecycle.Mount{Destination: to, Type: "bind", Source: path.Clean(from), Options: options},
	}, resource)
}

// whyBadPath returns the reason why a mount or device cannot have these paths; "" if the paths are valid.
func whyBadPath(container, host string) string {
	const longest = 4095 // PATH_MAX of Linux, without its NUL
	for _, p := range []string{container, host} {
		switch {
		case !path.IsAbs(p) || len(p) > longest || strings.IndexByte(p, 0) >= 0:
			return "is not an absolute path"
		case slices.Contains(strings.Split(p, "/"), ".."):
			return "contains .."
		}
	}
	switch path.Clean(container) {
	case "/", "/proc", "/sys", "/dev":
		return "would hide the container's own files in " + path.Clean(container)
	}
	return ""
}

// addDevice adds a device node of the host.
func (a *answerValues) addDevice(resource string, d *api.DeviceSpec) {
	to, from := d.GetContainerPath(), d.GetHostPath()
	if to == "" {
		to = from
	}
	if why := whyBadPath(to, from); why != "" {
		a.addProblem(resource+" devices", from+" -> "+to, why)
		return
	}
	if p := d.GetPermissions(); p != "" && (!strings.Contains(p, "r") || !strings.Contains(p, "w") || strings.Trim(p, "rwm") != "") {
		a.addProblem(resource+" devices", from, fmt.Sprintf("has the permissions %q: the agent supports only rw and rwm", shorten(p)))
		return
	}
	at := path.Clean(from)
	if below, is := strings.CutPrefix(at, "/dev/"); is {
		at = path.Join(a.devDirectory, below)
	}
	node, err := readDeviceNode(at)
	if err != nil {
		a.addProblem(resource+" devices", from, err.Error())
		return
	}
	if node.Path = path.Clean(to); node.Path != path.Clean(from) {
		node.Host = path.Clean(from)
	}
	a.addValue(lifecycle.Value{Field: lifecycle.DeviceNode, Key: node.Path, Device: &node}, resource)
}

// readDeviceNode reads the type, the numbers, the mode and the owner of a device node of the host.
func readDeviceNode(file string) (lifecycle.Device, error) {
	info, err := os.Stat(file) //nolint:gosec // a trusted plugin names it
	if err != nil {
		return lifecycle.Device{}, fmt.Errorf("read the device: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return lifecycle.Device{}, fmt.Errorf("%s is not a device node", file)
	}
	kind := "b"
	if info.Mode()&fs.ModeCharDevice != 0 {
		kind = "c"
	}
	return lifecycle.Device{
		Type: kind, Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)), FileMode: lifecycle.Some(uint32(info.Mode().Perm())),
		UID: lifecycle.Some(st.Uid), GID: lifecycle.Some(st.Gid),
	}, nil
}
