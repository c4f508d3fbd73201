package cri

import (
	"cmp"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names of types for the table below and its functions.
type (
	criResources = cri.LinuxContainerResources
	criContainer = cri.ContainerConfig
	container    = lifecycle.Container
)

// fieldRow says how a decided value of one field is put into the CRI's requests. It is one row of fieldTable.
type fieldRow struct {
	field lifecycle.Field
	proto string // the field of the CRI; a final "." stands for all fields below it
	// create sets a field that only CreateContainer can set. It returns false for a value that the CRI cannot express.
	// If create is nil, criclient.Put sets the field, in CreateContainer and in updates.
	create func(c *criContainer, v lifecycle.Value) bool
	note   string // a remark for the docs
	// replaces reports whether create would change an existing entry of the request, or set a number to 0. If replaces
	// is nil, create only adds to the request.
	replaces func(c *container, v lifecycle.Value) bool
}

// fieldTable is the table of all fields that decided values can set in the CRI's requests. The capabilities of the
// attachment follow from this table.
var fieldTable = []fieldRow{
	{lifecycle.CPUShares, "LinuxContainerResources.cpu_shares", nil, "0 means unset, so Trimtab never sends 0", nil},
	{lifecycle.CPUQuota, "LinuxContainerResources.cpu_quota", nil, "-1 lifts the limit; 0 means unset, so Trimtab never sends 0", nil},
	{lifecycle.CPUPeriod, "LinuxContainerResources.cpu_period", nil, "0 means unset, so Trimtab never sends 0", nil},
	{lifecycle.CPUSetCPUs, "LinuxContainerResources.cpuset_cpus", nil, "cannot be cleared: empty means unset", nil},
	{lifecycle.CPUSetMems, "LinuxContainerResources.cpuset_mems", nil, "cannot be cleared: empty means unset", nil},
	{lifecycle.MemoryLimit, "LinuxContainerResources.memory_limit_in_bytes", nil,
		"0 means unset, so Trimtab never sends 0; -1 lifts the limit if the runtime accepts -1 ([parity.md](parity.md)); a runtime may set swap to the same value", nil},
	{lifecycle.Unified, "LinuxContainerResources.unified", nil, "cannot be removed once set; Trimtab never sends it on cgroup v1, because runtimes then fail the container", nil},
	{lifecycle.OOMScoreAdj, "LinuxContainerResources.oom_score_adj", setOOMScore,
		"only at creation; containerd may raise a low value (restrict_oom_score_adj)", func(_ *container, v lifecycle.Value) bool { return v.Int == 0 }},
	{lifecycle.Env, "ContainerConfig.envs", addEnv, "an existing variable keeps its position", hasEnv},
	{lifecycle.MountPoint, "ContainerConfig.mounts.", addMount, "only bind mounts; the only options are ro and the propagation", hasMount},
	{lifecycle.DeviceNode, "ContainerConfig.devices.", addDevice, "a device node of the host, at its own path or at the path that hooks.deviceNodes.allowed names; mode and owner cannot be set", hasDevice},
	{lifecycle.CDIDevice, "ContainerConfig.CDI_devices.", addCDI, "containerd 1.6 ignores it, and so does 1.7 if enable_cdi is false: Trimtab does not send it to these versions, and reports it as not applied", hasCDI},
	{lifecycle.Hugepages, "LinuxContainerResources.hugepage_limits", setHugepages,
		"only at creation: in an update, containerd would add a second limit of the same size", hasHugepages},
	{lifecycle.Annotation, "ContainerConfig.annotations", func(c *criContainer, v lifecycle.Value) bool { return carry.SetPair(&c.Annotations, v) },
		"annotations of the container in the runtime; its OCI spec has only those that the runtime is configured to pass on", nil},
}

// rowOf returns the row of a field, or nil if there is none.
func rowOf(f lifecycle.Field) *fieldRow {
	for i := range fieldTable {
		if fieldTable[i].field == f {
			return &fieldTable[i]
		}
	}
	return nil
}

// Rows lists every field of the CRI's requests about containers and pods, and which of these fields decided values set.
// It is for the docs.
func Rows() []criclient.Row {
	rows := criclient.Rows()
	for i := range rows {
		for _, s := range fieldTable {
			if rows[i].Proto == s.proto {
				rows[i].Setting, rows[i].Create, rows[i].Update = s.field.String(), true, s.create == nil
				rows[i].Note = cmp.Or(s.note, rows[i].Note)
			}
		}
	}
	return rows
}

// Carries reports whether a call to the newest runtime can set a field. The parameter kind is the event that the call
// causes: CreateContainer or UpdateContainer. Attachment.Capabilities reports the same for the connected runtime.
func Carries(kind lifecycle.Kind, f lifecycle.Field) bool {
	s := rowOf(f)
	switch kind {
	case lifecycle.CreateContainer:
		return s != nil
	case lifecycle.UpdateContainer:
		return s != nil && s.create == nil
	}
	return false
}

// putInConfig puts values into the configuration of a container that is to be created. It returns the values that the
// CRI does not support.
func putInConfig(c *criContainer, values []lifecycle.Value) (unsupported []lifecycle.Value) {
	for _, v := range values {
		s := rowOf(v.Field)
		switch {
		case s == nil || v.Scope != lifecycle.OfContainer:
		case s.create != nil && s.create(c, v):
			continue
		case s.create == nil && criclient.Put(resourcesOf(c), v):
			continue
		}
		unsupported = append(unsupported, v)
	}
	return unsupported
}

// putInResources puts values into the resources of an update. It returns the values that the CRI does not support.
func putInResources(r *criResources, values []lifecycle.Value) (unsupported []lifecycle.Value) {
	for _, v := range values {
		if !criclient.Put(r, v) {
			unsupported = append(unsupported, v)
		}
	}
	return unsupported
}

// resourcesOf returns the container's resources. If there are none, it adds empty resources.
func resourcesOf(c *criContainer) *criResources {
	if c.Linux == nil {
		c.Linux = &cri.LinuxContainerConfig{}
	}
	if c.Linux.Resources == nil {
		c.Linux.Resources = &criResources{}
	}
	return c.Linux.Resources
}

// setOOMScore sets oom_score_adj. It is a function for fieldRow.create.
func setOOMScore(c *criContainer, v lifecycle.Value) bool {
	if v.Int < -1000 || v.Int > 1000 {
		return false
	}
	resourcesOf(c).OomScoreAdj = v.Int
	return true
}

// setHugepages sets the limit for huge pages of one size. It is a function for fieldRow.create.
func setHugepages(c *criContainer, v lifecycle.Value) bool {
	if v.Key == "" || v.Int < 0 {
		return false
	}
	r := resourcesOf(c)
	for _, h := range r.HugepageLimits {
		if h.GetPageSize() == v.Key {
			h.Limit = uint64(v.Int)
			return true
		}
	}
	r.HugepageLimits = append(r.HugepageLimits, &cri.HugepageLimit{PageSize: v.Key, Limit: uint64(v.Int)})
	return true
}

// addEnv sets or removes an environment variable. It is a function for fieldRow.create.
func addEnv(c *criContainer, v lifecycle.Value) bool {
	if v.Key == "" || strings.Contains(v.Key, "=") {
		return false
	}
	if v.Remove {
		c.Envs = slices.DeleteFunc(c.Envs, func(e *cri.KeyValue) bool { return e.GetKey() == v.Key })
		return true
	}
	for _, e := range c.Envs {
		if e.GetKey() == v.Key {
			e.Value = []byte(v.Text)
			return true
		}
	}
	c.Envs = append(c.Envs, &cri.KeyValue{Key: v.Key, Value: []byte(v.Text)})
	return true
}

// addMount adds a bind mount, or replaces the mount with the same destination. It is a function for fieldRow.create.
func addMount(c *criContainer, v lifecycle.Value) bool {
	m := v.Mount
	if m == nil || m.Destination == "" || m.Source == "" || m.Type != "" && m.Type != "bind" {
		return false
	}
	out := &cri.Mount{ContainerPath: m.Destination, HostPath: m.Source, Readonly: slices.Contains(m.Options, "ro")}
	switch {
	case slices.Contains(m.Options, "rshared"):
		out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
	case slices.Contains(m.Options, "rslave"):
		out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	}
	c.Mounts = append(slices.DeleteFunc(c.Mounts, func(o *cri.Mount) bool { return o.GetContainerPath() == m.Destination }), out)
	return true
}

// addDevice adds a device node, or replaces the one at the same path. It is a function for fieldRow.create.
func addDevice(c *criContainer, v lifecycle.Value) bool {
	if v.Device == nil || v.Device.Path == "" {
		return false
	}
	path := v.Device.Path
	c.Devices = append(slices.DeleteFunc(c.Devices, func(o *cri.Device) bool { return o.GetContainerPath() == path }),
		&cri.Device{ContainerPath: path, HostPath: cmp.Or(v.Device.Host, path), Permissions: "rw"})
	return true
}

// addCDI adds a CDI device. It is a function for fieldRow.create.
func addCDI(c *criContainer, v lifecycle.Value) bool {
	if v.Key == "" {
		return false
	}
	if !slices.ContainsFunc(c.CDIDevices, func(o *cri.CDIDevice) bool { return o.GetName() == v.Key }) {
		c.CDIDevices = append(c.CDIDevices, &cri.CDIDevice{Name: v.Key})
	}
	return true
}

// hasEnv reports whether a container already has the environment variable of a value.
func hasEnv(c *container, v lifecycle.Value) bool {
	return slices.ContainsFunc(c.Env, func(e string) bool { return len(e) > len(v.Key) && e[len(v.Key)] == '=' && e[:len(v.Key)] == v.Key })
}

// hasMount reports whether a container already has a mount at the destination of a value.
func hasMount(c *container, v lifecycle.Value) bool {
	return v.Mount != nil && slices.ContainsFunc(c.Mounts, func(m lifecycle.Mount) bool { return m.Destination == v.Mount.Destination })
}

// hasDevice reports whether a container already has a device node at the path of a value.
func hasDevice(c *container, v lifecycle.Value) bool {
	return v.Device != nil && slices.ContainsFunc(c.Devices, func(d lifecycle.Device) bool { return d.Path == v.Device.Path })
}

// hasCDI reports whether a container already has the CDI device of a value.
func hasCDI(c *container, v lifecycle.Value) bool { return slices.Contains(c.CDIDevices, v.Key) }

// hasHugepages reports whether a container already has a limit for huge pages of the size of a value.
func hasHugepages(c *container, v lifecycle.Value) bool {
	return slices.ContainsFunc(c.Resources.Hugepages, func(h lifecycle.HugepageLimit) bool { return h.Size == v.Key })
}
