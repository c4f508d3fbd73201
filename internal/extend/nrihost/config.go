package nrihost

import (
	"slices"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerOfConfig makes the NRI message about a container from the configuration in its CreateContainer request. The
// message lacks the data that the image and the runtime add.
func containerOfConfig(c *cri.ContainerConfig, pod string) *api.Container {
	out := &api.Container{
		PodSandboxId: pod, Name: c.GetMetadata().GetName(), State: api.ContainerState_CONTAINER_CREATED,
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(), Args: slices.Concat(c.GetCommand(), c.GetArgs()),
		Image: &api.Image{Name: c.GetImage().GetImage()}, Linux: &api.LinuxContainer{Resources: toNRIResources(c.GetLinux().GetResources())},
	}
	for _, e := range c.GetEnvs() {
		out.Env = append(out.Env, e.GetKey()+"="+string(e.GetValue()))
	}
	for _, m := range c.GetMounts() {
		options := []string{"rbind", "rw"}
		if m.GetReadonly() {
			options[1] = "ro"
		}
		out.Mounts = append(out.Mounts, &api.Mount{Destination: m.GetContainerPath(), Type: "bind", Source: m.GetHostPath(), Options: options})
	}
	for _, d := range c.GetDevices() {
		out.Linux.Devices = append(out.Linux.Devices, &api.LinuxDevice{Path: d.GetContainerPath()})
	}
	for _, d := range c.GetCDIDevices() {
		out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: d.GetName()})
	}
	if r := c.GetLinux().GetResources(); r != nil {
		out.Linux.OomScoreAdj = api.Int(r.GetOomScoreAdj())
	}
	return out
}

// adjustConfig applies an NRI adjustment, which has the changes that plugins request, to the configuration of a
// container before its creation. The result unsupported has the names of the adjustment's fields that have no
// equivalent in the CRI.
func adjustConfig(c *cri.ContainerConfig, a *api.ContainerAdjustment) (unsupported []string) {
	if a == nil {
		return nil
	}
	adjustAnnotations(c, a.GetAnnotations())
	adjustEnv(c, a.GetEnv())
	if args := a.GetArgs(); len(args) > 0 {
		if args[0] == "" { // NRI marks arguments that replace earlier ones with an empty first argument
			args = args[1:]
		}
		c.Command, c.Args = args, nil
	}
	for _, m := range a.GetMounts() {
		if !adjustMount(c, m) {
			unsupported = append(unsupported, "mounts["+m.GetDestination()+"]")
		}
	}
	for _, d := range a.GetCDIDevices() {
		c.CDIDevices = append(c.CDIDevices, &cri.CDIDevice{Name: d.GetName()})
	}
	if h := a.GetHooks(); h != nil && !proto.Equal(h, &api.Hooks{}) {
		unsupported = append(unsupported, "hooks")
	}
	if len(a.GetRlimits()) > 0 {
		unsupported = append(unsupported, "rlimits")
	}
	return append(unsupported, adjustLinux(c, a.GetLinux())...)
}

// adjustAnnotations sets and removes annotations. An annotation that is both removed and set gets the new value.
func adjustAnnotations(c *cri.ContainerConfig, change map[string]string) {
	for k, v := range change {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		if key, removed := api.IsMarkedForRemoval(k); removed {
			if _, set := change[key]; !set {
				delete(c.Annotations, key)
			}
			continue
		}
		c.Annotations[k] = v
	}
}

// adjustEnv sets and removes environment variables.
func adjustEnv(c *cri.ContainerConfig, change []*api.KeyValue) {
	for _, e := range change {
		key, gone := api.IsMarkedForRemoval(e.GetKey())
		c.Envs = slices.DeleteFunc(c.Envs, func(o *cri.KeyValue) bool { return o.GetKey() == key })
		if !gone {
			c.Envs = append(c.Envs, &cri.KeyValue{Key: key, Value: []byte(e.GetValue())})
		}
	}
}

// adjustMount adds, replaces or removes one mount. It returns false if the CRI cannot express the change.
func adjustMount(c *cri.ContainerConfig, m *api.Mount) bool {
	at, gone := api.IsMarkedForRemoval(m.GetDestination())
	n := len(c.Mounts)
	c.Mounts = slices.DeleteFunc(c.Mounts, func(o *cri.Mount) bool { return o.GetContainerPath() == at })
	if gone {
		return len(c.Mounts) < n // false for a mount that the runtime adds, because the CRI cannot remove this mount
	}
	if m.GetType() != "" && m.GetType() != "bind" || m.GetSource() == "" {
		return false
	}
	out := &cri.Mount{ContainerPath: at, HostPath: m.GetSource(), Readonly: slices.Contains(m.GetOptions(), "ro")}
	switch {
	case slices.Contains(m.GetOptions(), "rshared"):
		out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
	case slices.Contains(m.GetOptions(), "rslave"):
		out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	}
	c.Mounts = append(c.Mounts, out)
	return true
}

// adjustLinux applies the Linux section of an adjustment. The result unsupported has the names of the fields that have
// no equivalent in the CRI.
func adjustLinux(c *cri.ContainerConfig, l *api.LinuxContainerAdjustment) (unsupported []string) {
	if l == nil {
		return nil
	}
	l = clone(l) // the code below clears each field of this copy after applying it
	if c.Linux == nil {
		c.Linux = &cri.LinuxContainerConfig{}
	}
	for _, d := range l.GetDevices() {
		at, gone := api.IsMarkedForRemoval(d.GetPath())
		c.Devices = slices.DeleteFunc(c.Devices, func(o *cri.Device) bool { return o.GetContainerPath() == at })
		if !gone {
			c.Devices = append(c.Devices, &cri.Device{ContainerPath: at, HostPath: at, Permissions: "rw"})
		}
	}
	forCRI, rest, unsupported := splitForCRI(l.GetResources())
	if rest != nil {
		if forCRI == nil {
			forCRI = &cri.LinuxContainerResources{}
		}
		for _, h := range rest.GetHugepageLimits() {
			forCRI.HugepageLimits = append(forCRI.HugepageLimits, &cri.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
		}
		forCRI.Unified, rest.HugepageLimits, rest.Unified = rest.GetUnified(), nil, nil
		unsupported = append(unsupported, namesOfSetFields(rest)...)
	}
	c.Linux.Resources = mergeResources(forCRI, c.Linux.Resources)
	if o := l.GetOomScoreAdj(); o != nil {
		if c.Linux.Resources == nil {
			c.Linux.Resources = &cri.LinuxContainerResources{}
		}
		c.Linux.Resources.OomScoreAdj = o.GetValue()
	}
	l.Devices, l.Resources, l.OomScoreAdj = nil, nil, nil
	if proto.Equal(l.GetRdt(), &api.LinuxRdt{}) {
		l.Rdt = nil // the NRI library's answer always has an RDT section, which is empty if no plugin set it
	}
	return append(unsupported, namesOfSetFields(l)...)
}

// namesOfSetFields returns the names of the fields that are set in a message, with the prefix "linux.". A field with an
// empty message counts as not set.
func namesOfSetFields[M proto.Message](m M) (names []string) {
	r := m.ProtoReflect()
	if !r.IsValid() {
		return nil
	}
	r.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() == nil || f.IsList() || f.IsMap() || !proto.Equal(v.Message().Interface(), v.Message().New().Interface()) {
			names = append(names, "linux."+string(f.Name()))
		}
		return true
	})
	slices.Sort(names)
	return names
}
