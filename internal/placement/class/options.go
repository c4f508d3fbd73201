package class

// SchedulingOptions are one scheduling class: how the kernel schedules the processes of containers with this
// class.
type SchedulingOptions struct {
	// Name is the name of the class.
	Name string `json:"name" check:"class"`
	// Policy is the scheduling policy, for example batch for SCHED_BATCH. The value none leaves the policy unchanged.
	// An empty value means other if nice or flags are set, and otherwise none.
	Policy string `json:"policy" check:"|none|other|fifo|rr|batch|idle|deadline"`
	// Priority is the real-time priority, for fifo and rr.
	Priority int `json:"priority" check:"0..99"`
	// Flags are the flags of the scheduling policy, for example reset-on-fork for
	// SCHED_FLAG_RESET_ON_FORK.
	Flags []string `json:"flags" check:"scheduling flags"`
	// Nice is the nice value, for other, batch and idle.
	Nice int `json:"nice" check:"-20..19"`
	// Runtime is the CPU time in µs within each deadline, for the policy deadline.
	Runtime int `json:"runtime" check:"0..1000000000"`
	// Deadline is the relative deadline in µs, for the policy deadline.
	Deadline int `json:"deadline" check:"0..1000000000"`
	// Period is the period in µs, for the policy deadline; 0 means the same as the deadline.
	Period int `json:"period" check:"0..1000000000"`
	// IOClass is the class of the I/O priority, for example be for IOPRIO_CLASS_BE. If it is empty, the I/O
	// priority does not change.
	IOClass string `json:"ioClass" check:"|none|rt|be|idle"`
	// IOPriority is the level of the I/O priority, for rt and be; 0 is the highest.
	IOPriority int `json:"ioPriority" check:"0..7"`
}

// NamespaceOptions give the containers of namespaces a scheduling class.
type NamespaceOptions struct {
	// Namespaces are names or patterns of namespaces.
	Namespaces []string `json:"namespaces" check:"namespaces"`
	// SchedulingClass is the name of the class.
	SchedulingClass string `json:"schedulingClass" check:"class"`
}

// QoSOptions give the containers of pods of a QoS class a scheduling class.
type QoSOptions struct {
	// QoSClass is the QoS class of the pods.
	QoSClass string `json:"qosClass" check:"Guaranteed|Burstable|BestEffort"`
	// SchedulingClass is the name of the class.
	SchedulingClass string `json:"schedulingClass" check:"class"`
}
