package lifecycle

// Opt is a value that may be absent. The zero Opt is absent. In NRI and CRI, an absent value has another
// meaning than the value 0.
type Opt[T comparable] struct {
	V   T
	Set bool // V is present
}

// Some returns a present value.
func Some[T comparable](v T) Opt[T] { return Opt[T]{V: v, Set: true} }

// Or returns the value, or def if the value is absent.
func (o Opt[T]) Or(def T) T {
	if o.Set {
		return o.V
	}
	return def
}

// Resources are the resources of a container or pod, for both cgroup versions. Units are those
// of the OCI runtime spec: quota and period in µs, memory in bytes, CPUs and Mems as a kernel
// list ("" is unset).
type Resources struct {
	CPU          CPU
	Memory       Memory
	Hugepages    []HugepageLimit
	BlockIOClass Opt[string]
	RDTClass     Opt[string]
	Unified      map[string]string // cgroup v2 file -> value
	Devices      []DeviceRule
	Pids         Opt[int64]
}

// CPU is the CPU part of Resources.
type CPU struct {
	Shares          Opt[uint64]
	Quota           Opt[int64]
	Period          Opt[uint64]
	RealtimeRuntime Opt[int64]
	RealtimePeriod  Opt[uint64]
	CPUs            string
	Mems            string
}

// Memory is the memory part of Resources.
type Memory struct {
	Limit            Opt[int64]
	Reservation      Opt[int64]
	Swap             Opt[int64]
	Kernel           Opt[int64]
	KernelTCP        Opt[int64]
	Swappiness       Opt[uint64]
	DisableOOMKiller Opt[bool]
	UseHierarchy     Opt[bool]
}

// Value returns the value of a field, and whether the value is set. It supports only the fields that
// runtimes store and cgroup files show; for other fields, set is false.
func (r *Resources) Value(f Field, key string) (v Value, set bool) {
	v = Value{Field: f, Key: key}
	switch f {
	case CPUShares:
		v.Int, set = int64(r.CPU.Shares.V), r.CPU.Shares.Set
	case CPUQuota:
		v.Int, set = r.CPU.Quota.V, r.CPU.Quota.Set
	case CPUPeriod:
		v.Int, set = int64(r.CPU.Period.V), r.CPU.Period.Set
	case MemoryLimit:
		v.Int, set = r.Memory.Limit.V, r.Memory.Limit.Set
	case CPUSetCPUs:
		v.Text, set = r.CPU.CPUs, r.CPU.CPUs != ""
	case CPUSetMems:
		v.Text, set = r.CPU.Mems, r.CPU.Mems != ""
	case Unified:
		v.Text, set = r.Unified[key]
	}
	return v, set
}

// HugepageLimit limits the huge pages of one size, such as "2MB", to a number of bytes.
type HugepageLimit struct {
	Size  string
	Limit uint64
}
