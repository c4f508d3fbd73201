package nri

import (
	"math"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// settableField is one row of the table of fields that NRI's answers can set: the field, and a function that puts a
// value of this field into the answer. This function is resource for a field of resources, and create for another
// field. The function returns false for a value that NRI cannot express. The attachment logs such a value and does not
// send it.
type settableField struct {
	field lifecycle.Field
	proto string // the field of NRI's Container that the row sets
	// resource sets a field of resources, in adjustments and in updates.
	resource func(r *api.LinuxResources, v lifecycle.Value) bool
	// create sets a field that only the answer to CreateContainer can set. The parameter had is the container in the
	// runtime's request.
	create func(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool
	note   string // a remark for the docs
	// adjustOnlySince is the first NRI release whose adjustments have this field, if runtimes never report the field to
	// plugins. It is "" if runtimes report the field.
	adjustOnlySince string
}

// settableFields is the table of all fields that NRI's answers can set. The attachment's capabilities follow from it. A
// plugin cannot override a resource of one value, such as CPU shares, that an earlier plugin has set: the runtime then
// refuses the creation.
var settableFields = append(resourceFields, processFields...)

// resourceFields are the rows for resources, environment variables, mounts, devices, classes, annotations and the
// OOM score.
var resourceFields = []settableField{
	{
		field: lifecycle.CPUShares, proto: "linux.resources.cpu.shares", resource: carry.NumberSetter(1, func(r *api.LinuxResources, n int64) { cpuOf(r).Shares = &api.OptionalUInt64{Value: uint64(n)} }),
		note: "0 means unset in containerd's updates, so Trimtab never sends 0",
	},
	{
		field: lifecycle.CPUQuota, proto: "linux.resources.cpu.quota", resource: carry.NumberSetter(math.MinInt64, func(r *api.LinuxResources, n int64) { cpuOf(r).Quota = &api.OptionalInt64{Value: n} }),
		note: "-1 lifts the limit in all runtimes; 0 means unset in containerd's updates, so Trimtab never sends 0",
	},
	{
		field: lifecycle.CPUPeriod, proto: "linux.resources.cpu.period", resource: carry.NumberSetter(1, func(r *api.LinuxResources, n int64) { cpuOf(r).Period = &api.OptionalUInt64{Value: uint64(n)} }),
		note: "0 means unset in containerd's updates, so Trimtab never sends 0",
	},
	{field: lifecycle.CPUSetCPUs, proto: "linux.resources.cpu.cpus", resource: carry.TextSetter(func(r *api.LinuxResources, list string) { cpuOf(r).Cpus = list }), note: "cannot be cleared: empty means unset"},
	{field: lifecycle.CPUSetMems, proto: "linux.resources.cpu.mems", resource: carry.TextSetter(func(r *api.LinuxResources, list string) { cpuOf(r).Mems = list }), note: "cannot be cleared: empty means unset"},
	{
		field: lifecycle.MemoryLimit, proto: "linux.resources.memory.limit", resource: carry.NumberSetter(math.MinInt64, func(r *api.LinuxResources, n int64) { r.Memory = &api.LinuxMemory{Limit: &api.OptionalInt64{Value: n}} }),
		note: "-1 lifts the limit if the runtime accepts that ([parity.md](parity.md)); 0 is ignored at creation and means unset in updates, so Trimtab never sends 0; " +
			"runtimes force swap to the same value: always at creation, and in containerd's updates if the kernel accounts swap",
	},
	{field: lifecycle.Unified, proto: "linux.resources.unified{}", resource: func(r *api.LinuxResources, v lifecycle.Value) bool { return carry.SetPair(&r.Unified, v) }, note: "cannot be removed once set"},
	{
		field: lifecycle.Env, proto: "env[]", create: addEnv,
		note: "if the container already has the variable, Trimtab first marks it for removal: " +
			"otherwise a runtime may keep its old value, and would refuse a variable that an earlier plugin set",
	},
	{
		field: lifecycle.MountPoint, proto: "mounts[]", create: addMount,
		note: "if the container already has the mount, Trimtab first marks it for removal",
	},
	{
		field: lifecycle.DeviceNode, proto: "linux.devices[]", create: addDevice,
		note: "if the container already has the device, Trimtab first marks it for removal; runtimes add an rw device cgroup rule",
	},
	{
		field: lifecycle.CDIDevice, proto: "CDI_devices[]", create: addCDI,
		note: "containerd before 1.7.30 and in 2.0 ignores it, and so do other runtimes before NRI 0.10: Trimtab does not send it to them, and " +
			"reports it as not applied; a device name that the runtime cannot resolve fails the creation",
	},
	{
		field: lifecycle.OOMScoreAdj, proto: "linux.oom_score_adj", create: setOOMScore,
		note: "runtimes before NRI 0.7 ignore it: Trimtab does not send it to them, and reports it as not applied",
	},
	{
		field: lifecycle.Hugepages, proto: "linux.resources.hugepage_limits[]", create: setHugepages,
		note: "containerd adds a second limit of the same size, and the OCI runtime applies the last one; so Trimtab never sends it in updates",
	},
	{
		field: lifecycle.BlockIOClass, proto: "linux.resources.blockio_class", create: creationTextSetter((*api.ContainerAdjustment).SetLinuxBlockIOClass),
		note: "a runtime without a block I/O configuration ignores it; a class that the configuration does not have fails the creation, " +
			"but CRI-O drops such a class without an error; " +
			"lost in containerd's updates",
	},
	{
		field: lifecycle.RDTClass, proto: "linux.resources.rdt_class", create: creationTextSetter((*api.ContainerAdjustment).SetLinuxRDTClass),
		note: "a runtime without an RDT configuration ignores it; a class that the configuration does not have fails the creation; " +
			"lost in containerd's updates",
	},
	{
		field: lifecycle.Annotation, proto: "annotations{}", create: addAnnotation,
		note: "Trimtab never marks it for removal: if one answer has a removal and a value, either of them may take effect",
	},
}

// settableByField has the rows of settableFields by field.
var settableByField = func() map[lifecycle.Field]*settableField {
	m := make(map[lifecycle.Field]*settableField, len(settableFields))
	for i := range settableFields {
		m[settableFields[i].field] = &settableFields[i]
	}
	return m
}()

// toAdjustment converts values to an adjustment of the container that the runtime creates. It returns nil if no value
// can be set; the agent then changes nothing in the container. It also returns the values that NRI or the runtime does
// not support. The parameter had is the container in the runtime's request.
func (p peer) toAdjustment(values []lifecycle.Value, had *api.Container) (*api.ContainerAdjustment, []lifecycle.Value) {
	r := &api.LinuxResources{}
	a := &api.ContainerAdjustment{Linux: &api.LinuxContainerAdjustment{Resources: r}}
	var other, resources bool
	var unsupported []lifecycle.Value
	for _, v := range values {
		s := settableByField[v.Field]
		switch {
		case s == nil || v.Scope != lifecycle.OfContainer || p.kind.WhyNotAccepted(runtimes.NRI, runtimes.CreateCall, v) != "":
			unsupported = append(unsupported, v)
		case s.resource != nil && s.resource(r, v):
			resources = true
		case s.create != nil && s.create(a, had, v):
			other = true
		default:
			unsupported = append(unsupported, v)
		}
	}
	if !other && !resources {
		return nil, unsupported
	}
	if proto.Size(r) == 0 {
		a.Linux.Resources = nil
	}
	if proto.Size(a.Linux) == 0 {
		a.Linux = nil
	}
	return a, unsupported
}

// toUpdate converts values to an update of an existing container. Only resources can be updated. It returns nil if no
// value can be set. It also returns the values that NRI or the runtime does not support in the call c.
func (p peer) toUpdate(id string, c runtimes.Call, values []lifecycle.Value) (*api.ContainerUpdate, []lifecycle.Value) {
	r := &api.LinuxResources{}
	var any bool
	var unsupported []lifecycle.Value
	for _, v := range values {
		s := settableByField[v.Field]
		if s == nil || v.Scope != lifecycle.OfContainer || s.resource == nil ||
			p.kind.WhyNotAccepted(runtimes.NRI, c, v) != "" || !s.resource(r, v) {
			unsupported = append(unsupported, v)
			continue
		}
		any = true
	}
	if !any {
		return nil, unsupported
	}
	return &api.ContainerUpdate{ContainerId: id, Linux: &api.LinuxContainerUpdate{Resources: r}}, unsupported
}

// cpuOf returns the CPU section of resources, and adds the section if it is missing.
func cpuOf(r *api.LinuxResources) *api.LinuxCPU {
	if r.Cpu == nil {
		r.Cpu = &api.LinuxCPU{}
	}
	return r.Cpu
}

// creationTextSetter returns a function that sets a string field. Trimtab sets this field only in the answer to
// CreateContainer.
func creationTextSetter(set func(a *api.ContainerAdjustment, name string)) func(*api.ContainerAdjustment, *api.Container, lifecycle.Value) bool {
	put := carry.TextSetter(set)
	return func(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool { return put(a, v) }
}

// isUsableKey reports whether an answer can set the entry with this key. The key must not be empty, and must not begin
// with -, because this prefix marks a removal in NRI.
func isUsableKey(key string) bool { return key != "" && !strings.HasPrefix(key, "-") }

// addEnv sets an environment variable. Like all functions of this kind, it returns false if NRI cannot express the
// value v. The parameter had is the container in the runtime's request.
func addEnv(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if v.Remove || !isUsableKey(v.Key) || strings.Contains(v.Key, "=") {
		return false // runtimes drop the removal of a variable if no new value follows
	}
	if slices.ContainsFunc(had.GetEnv(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == v.Key
	}) {
		a.RemoveEnv(v.Key)
	}
	a.AddEnv(v.Key, v.Text)
	return true
}

// addMount sets a mount. It replaces a mount of the container with the same destination.
func addMount(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if v.Mount == nil || !isUsableKey(v.Mount.Destination) {
		return false
	}
	m := v.Mount
	if slices.ContainsFunc(had.GetMounts(), func(o *api.Mount) bool { return o.GetDestination() == m.Destination }) {
		a.RemoveMount(m.Destination)
	}
	a.AddMount(&api.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: slices.Clone(m.Options)})
	return true
}

// addDevice sets a device. It replaces a device of the container with the same path.
func addDevice(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if v.Device == nil || !isUsableKey(v.Device.Path) {
		return false
	}
	d := v.Device
	if slices.ContainsFunc(had.GetLinux().GetDevices(), func(o *api.LinuxDevice) bool { return o.GetPath() == d.Path }) {
		a.RemoveDevice(d.Path)
	}
	out := &api.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor}
	if d.FileMode.Set {
		out.FileMode = &api.OptionalFileMode{Value: d.FileMode.V}
	}
	if d.UID.Set {
		out.Uid = &api.OptionalUInt32{Value: d.UID.V}
	}
	if d.GID.Set {
		out.Gid = &api.OptionalUInt32{Value: d.GID.V}
	}
	a.AddDevice(out)
	return true
}

// setOOMScore sets oom_score_adj. It returns false for a number that the kernel refuses.
func setOOMScore(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	if v.Int < -1000 || v.Int > 1000 {
		return false
	}
	a.SetLinuxOomScoreAdj(new(int(v.Int)))
	return true
}

// setHugepages sets the limit for huge pages of one size: v.Key is the size, and v.Int is the limit in bytes.
func setHugepages(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	if v.Key == "" || v.Int < 0 {
		return false
	}
	a.AddLinuxHugepageLimit(v.Key, uint64(v.Int))
	return true
}

// addCDI adds the CDI device v.Key, if the container does not have it already.
func addCDI(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if !isUsableKey(v.Key) {
		return false
	}
	if !slices.ContainsFunc(had.GetCDIDevices(), func(o *api.CDIDevice) bool { return o.GetName() == v.Key }) {
		a.AddCDIDevice(&api.CDIDevice{Name: v.Key})
	}
	return true
}

// addAnnotation sets the annotation v.Key to v.Text.
func addAnnotation(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	if !isUsableKey(v.Key) {
		return false
	}
	a.AddAnnotation(v.Key, v.Text)
	return true
}
