package lifecycle

import (
	"encoding/json"
	"maps"
	"slices"
)

// Kept are those properties of a container that no runtime reports later. Each
// field is declared here and nowhere else: records and checkpoints are written and
// read by these tags, in this order, and the engine's containers embed it.
type Kept struct {
	// Ours are the resources that a hook ever decided for it: the runtime's copy
	// may still hold our value when no hook decides one any more.
	Ours []Field `json:"ours,omitempty"`
	// Unplaced: placement has been off all its life, so CPUs were never refused to
	// it and it may get them when placement is switched on.
	Unplaced bool `json:"unplaced,omitempty"`
	// Wanted is how many CPUs it requested without success at its last resize; 0 if it got
	// as many as it requested.
	Wanted int `json:"wanted,omitempty"`
	// PoolNode is the NUMA node of its pool.
	PoolNode Opt[int] `json:"home,omitzero"`
	// Mems are the memory nodes it was created with, as a kernel list; "" if none
	// were decided. They are not decided again: pages would have to move.
	Mems string `json:"mems,omitempty"`
	// Exports are the environment variables about its CPUs that it was created with.
	Exports map[string]string `json:"exports,omitempty"`
	// Outside are the granted values of hook servers; they have priority over those
	// of hooks.
	Outside []Value `json:"outside,omitempty"`
	// Pristine are the resources of the runtime's request, without our changes. A
	// record has them in a form of its own (pristine).
	Pristine Resources `json:"-"`
}

// Record is what is stored of a container outside of the process.
type Record struct {
	Version    int    `json:"v"`
	Generation uint64 `json:"gen"`
	CPUs       string `json:"cpus,omitempty"` // CPUs it owns, as a kernel list
	// Given are values it was created with that no runtime reports.
	Given map[Field]string `json:"given,omitempty"`
	Kept
	// Late: it was written after the container was created, and nothing is newer.
	Late bool `json:"-"`
	// Stamped are the resources that were requested at the container's creation, if
	// it is Late and carries a record of its creation; else nil.
	Stamped *Resources `json:"-"`
}

// RecordVersion is the version of the records that are written, and the only one
// that is read.
const RecordVersion = 1

// pristine is the form of resources in a record: those that a release could
// restore.
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

// Storable returns a record as it will be when it is read back.
func (r Record) Storable() Record {
	p := spelled(&r.Pristine)
	r.Pristine = p.resources()
	return r
}

// plain is a Record that is written by its fields' tags alone.
type plain Record

// stored is a record's JSON.
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

// MarshalJSON writes the value. Absent ones are left out by their tag (omitzero).
func (o Opt[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.V) }

// UnmarshalJSON reads a value that is present.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	o.Set = string(text) != "null"
	return json.Unmarshal(text, &o.V)
}
