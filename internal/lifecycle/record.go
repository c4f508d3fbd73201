package lifecycle

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// RecordFields are the properties of a container that the agent must store, because no runtime reports
// them. The JSON tags and the order of the fields define the encoding of records and checkpoints.
type RecordFields struct {
	// Managed are the resources that the agent has decided for the container since its creation. The list also has
	// resources that the agent does not decide any more, because the runtime possibly still stores the old value.
	Managed []Field `json:"ours,omitempty"`
	// NeverPlaced means that placement (the choice of CPUs by the agent) has been disabled for the container's whole
	// life. The agent has thus never refused CPUs to the container. If placement is enabled later, the container can
	// get CPUs.
	NeverPlaced bool `json:"unplaced,omitempty"`
	// RefusedCPUs is the number of CPUs that the container's last resize requested, if the agent refused
	// the resize; otherwise 0.
	RefusedCPUs int `json:"wanted,omitempty"`
	// PoolNode is the id of the NUMA node of the container's pool.
	PoolNode Opt[int] `json:"home,omitzero"`
	// Balloon is the name of the container's balloon; "" for none. BalloonCPUs are the CPUs of that balloon
	// at the time of the record, as a kernel list.
	Balloon     string `json:"balloon,omitempty"`
	BalloonCPUs string `json:"balloonCPUs,omitempty"`
	// Mems are the memory nodes that the agent decided at the container's creation, as a kernel list; ""
	// if it decided none. The agent removes none of these nodes later, because a removal makes the kernel move pages.
	Mems string `json:"mems,omitempty"`
	// ColdStart is set while the container is in a cold start, and otherwise zero.
	ColdStart ColdStart `json:"coldStart,omitzero"`
	// Scheduling is the scheduling class that the container got at its creation.
	Scheduling SchedulingClass `json:"scheduling,omitzero"`
	// CPUEnv are the environment variables that describe the container's CPUs, as set at its creation.
	CPUEnv map[string]string `json:"exports,omitempty"`
	// SkippedInterfaces are the requested network interfaces that the container did not get, because
	// they were no longer on the host.
	SkippedInterfaces []string `json:"skippedInterfaces,omitempty"`
	// CDIDevices are the exclusive CDI devices that the container got at its creation. DevicesRefused is the
	// reason why the container got none, although it requested such devices; otherwise "".
	CDIDevices     []string `json:"cdiDevices,omitempty"`
	DevicesRefused string   `json:"devicesRefused,omitempty"`
	// ClaimDevices are the CDI devices of the container's resource claims, as the request for the container had
	// them. CRI-O does not report these devices later.
	ClaimDevices []string `json:"claims,omitempty"`
	// OwnsClaimedCPUs means that the container owns the CPUs of its resource claims. After a restart of the agent,
	// such containers have priority over containers whose claims were refused.
	OwnsClaimedCPUs bool `json:"ownsByClaims,omitempty"`
	// HookServerValues are the accepted values of hook servers. They have priority over the values of hooks.
	HookServerValues []Value `json:"outside,omitempty"`
	// Pristine are the resources of the runtime's request, without the agent's changes. A record encodes
	// them as type restorable.
	Pristine Resources `json:"-"`
}

// ColdStart describes a cold start: the container starts with slow memory only, and gets other memory nodes later.
type ColdStart struct {
	Mems    string `json:"mems,omitempty"`    // the memory nodes that the container gets later, as a kernel list
	Seconds int    `json:"seconds,omitempty"` // the duration of the cold start
}

// Record is the stored state of a container: the part of the agent's state that survives a restart.
type Record struct {
	Version    int    `json:"v"`
	Generation uint64 `json:"gen"`            // the number of the agent's decisions before the record was made
	CPUs       string `json:"cpus,omitempty"` // the CPUs that the container owns, as a kernel list
	// CreatedWith has the values that the container got at its creation and that not every runtime reports.
	CreatedWith map[Field]string `json:"given,omitempty"`
	RecordFields
	// FromCheckpoint means that the record comes from the agent's checkpoint, and not from the container's
	// annotations. It is then newer than the record in the annotations.
	FromCheckpoint bool `json:"-"`
	// StampedPristine is set for a record from the checkpoint if the container's annotations have a record, too. It is
	// the field Pristine of that record in the annotations.
	StampedPristine *Resources `json:"-"`
}

// RecordVersion is the only record version that the agent writes and reads.
const RecordVersion = 1

// restorable is the JSON form of the resources that the agent can restore to the values of the runtime's request.
type restorable struct {
	Shares Opt[uint64]       `json:"shares,omitzero"`
	Quota  Opt[int64]        `json:"quota,omitzero"`
	Period Opt[uint64]       `json:"period,omitzero"`
	CPUs   string            `json:"cpus,omitempty"`
	Mems   string            `json:"mems,omitempty"`
	Memory Opt[int64]        `json:"memory,omitzero"`
	Huge   map[string]uint64 `json:"huge,omitempty"` // limits of huge pages by size
}

// toRestorable converts resources to their JSON form, and drops the resources that the agent cannot restore.
func toRestorable(r *Resources) restorable {
	p := restorable{Shares: r.CPU.Shares, Quota: r.CPU.Quota, Period: r.CPU.Period, CPUs: r.CPU.CPUs, Mems: r.CPU.Mems, Memory: r.Memory.Limit}
	for _, h := range r.Hugepages {
		if p.Huge == nil {
			p.Huge = map[string]uint64{}
		}
		p.Huge[h.Size] = h.Limit
	}
	return p
}

// resources converts the JSON form back to resources.
func (p *restorable) resources() Resources {
	r := Resources{CPU: CPU{Shares: p.Shares, Quota: p.Quota, Period: p.Period, CPUs: p.CPUs, Mems: p.Mems}, Memory: Memory{Limit: p.Memory}}
	for _, size := range slices.Sorted(maps.Keys(p.Huge)) {
		r.Hugepages = append(r.Hugepages, HugepageLimit{Size: size, Limit: p.Huge[size]})
	}
	return r
}

// AsStored returns the record as it is after it was encoded and decoded: Pristine has only the resources that
// the type restorable has.
func (r Record) AsStored() Record {
	p := toRestorable(&r.Pristine)
	r.Pristine = p.resources()
	return r
}

// plainRecord is a Record without methods, so that package json encodes it by its tags.
type plainRecord Record

// storedRecord is the JSON form of a record.
type storedRecord struct {
	plainRecord
	Pristine restorable `json:"pristine"`
}

// MarshalJSON writes a record.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedRecord{plainRecord(r), toRestorable(&r.Pristine)})
}

// UnmarshalJSON reads a record.
func (r *Record) UnmarshalJSON(text []byte) error {
	var s storedRecord
	err := json.Unmarshal(text, &s)
	*r = Record(s.plainRecord)
	r.Pristine = s.Pristine.resources()
	return err
}

// MarshalJSON encodes a present value as itself and an absent value as null. The tag omitzero leaves out
// absent values.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.Set {
		return []byte("null"), nil
	}
	switch v := any(o.V).(type) { // a fast path for numbers, because most values in a record are numbers
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case uint64:
		return strconv.AppendUint(nil, v, 10), nil
	}
	return json.Marshal(o.V)
}

// UnmarshalJSON decodes a value. null makes it absent.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	o.Set = string(text) != "null"
	return json.Unmarshal(text, &o.V)
}
