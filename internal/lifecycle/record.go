package lifecycle

import (
	"encoding/json"
	"maps"
	"slices"
)

// RecordFields are properties of a container that no runtime reports later. Records and
// checkpoints are encoded by these tags, in this order. The engine's Container embeds the type.
type RecordFields struct {
	// Managed are the resources that any hook has decided for the container since its creation.
	// The runtime's copy may still have the agent's value of a resource that no hook decides any
	// more.
	Managed []Field `json:"ours,omitempty"`
	// Unplaced reports that placement has been off for the container's whole life. So the agent
	// never refused it CPUs, and it may get CPUs when placement is switched on.
	Unplaced bool `json:"unplaced,omitempty"`
	// RefusedCPUs is the number of CPUs that its last resize requested and did not get; 0 if
	// the resize succeeded.
	RefusedCPUs int `json:"wanted,omitempty"`
	// PoolNode is the id of the NUMA node of its pool.
	PoolNode Opt[int] `json:"home,omitzero"`
	// Balloon is the name of the balloon that it is in; "" for none. BalloonCPUs are the
	// balloon's own CPUs at the time of the record, as a kernel list.
	Balloon     string `json:"balloon,omitempty"`
	BalloonCPUs string `json:"balloonCPUs,omitempty"`
	// Mems are the memory nodes that the container was created with, as a kernel list; "" if the
	// agent decided none. They never change, because the kernel would have to move pages.
	Mems string `json:"mems,omitempty"`
	// Scheduling is the scheduling class that the container was created with.
	Scheduling SchedulingClass `json:"scheduling,omitzero"`
	// CPUEnv are the environment variables about its CPUs that the container was created with.
	CPUEnv map[string]string `json:"exports,omitempty"`
	// SkippedInterfaces are network interfaces of the host that it asked for and was created
	// without, because they had left the host.
	SkippedInterfaces []string `json:"skippedInterfaces,omitempty"`
	// HookServerValues are the granted values of hook servers. They have priority over values of
	// hooks.
	HookServerValues []Value `json:"outside,omitempty"`
	// Pristine are the resources of the runtime's request, without our changes. A record
	// encodes them as type pristine.
	Pristine Resources `json:"-"`
}

// Record is what is stored about a container outside of the agent's process.
type Record struct {
	Version    int    `json:"v"`
	Generation uint64 `json:"gen"`
	CPUs       string `json:"cpus,omitempty"` // CPUs it owns, as a kernel list
	// CreatedWith are values that the container was created with and that some runtime does not report.
	CreatedWith map[Field]string `json:"given,omitempty"`
	RecordFields
	// Late reports that the record comes from the checkpoint and is newer than the record of the
	// container's creation.
	Late bool `json:"-"`
	// Stamped are the resources of the container's creation, if the record is Late and the
	// container carries a record of its creation; otherwise nil.
	Stamped *Resources `json:"-"`
}

// RecordVersion is the only record version that is written and read.
const RecordVersion = 1

// pristine encodes the resources that a release could restore.
type pristine struct {
	Shares Opt[uint64]       `json:"shares,omitzero"`
	Quota  Opt[int64]        `json:"quota,omitzero"`
	Period Opt[uint64]       `json:"period,omitzero"`
	CPUs   string            `json:"cpus,omitempty"`
	Mems   string            `json:"mems,omitempty"`
	Memory Opt[int64]        `json:"memory,omitzero"`
	Huge   map[string]uint64 `json:"huge,omitempty"` // limits of huge pages by size
}

func spelled(r *Resources) pristine {
	p := pristine{Shares: r.CPU.Shares, Quota: r.CPU.Quota, Period: r.CPU.Period, CPUs: r.CPU.CPUs, Mems: r.CPU.Mems, Memory: r.Memory.Limit}
	for _, h := range r.Hugepages {
		if p.Huge == nil {
			p.Huge = map[string]uint64{}
		}
		p.Huge[h.Size] = h.Limit
	}
	return p
}

func (p *pristine) resources() Resources {
	r := Resources{CPU: CPU{Shares: p.Shares, Quota: p.Quota, Period: p.Period, CPUs: p.CPUs, Mems: p.Mems}, Memory: Memory{Limit: p.Memory}}
	for _, size := range slices.Sorted(maps.Keys(p.Huge)) {
		r.Hugepages = append(r.Hugepages, HugepageLimit{Size: size, Limit: p.Huge[size]})
	}
	return r
}

// Storable returns the record as a decoder would return it.
func (r Record) Storable() Record {
	p := spelled(&r.Pristine)
	r.Pristine = p.resources()
	return r
}

// plain is a Record without methods, encoded by its tags.
type plain Record

// stored is the JSON form of a record.
type stored struct {
	plain
	Pristine pristine `json:"pristine"`
}

// MarshalJSON writes a record.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{plain(r), spelled(&r.Pristine)})
}

// UnmarshalJSON reads a record.
func (r *Record) UnmarshalJSON(text []byte) error {
	var s stored
	err := json.Unmarshal(text, &s)
	*r = Record(s.plain)
	r.Pristine = s.Pristine.resources()
	return err
}

// MarshalJSON writes the value. Absent ones are left out by their tag (omitzero), or
// written as null.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.Set {
		return []byte("null"), nil
	}
	return json.Marshal(o.V)
}

// UnmarshalJSON reads a value that is present.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	o.Set = string(text) != "null"
	return json.Unmarshal(text, &o.V)
}
