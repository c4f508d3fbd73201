package api

import "fmt"

// CPUClasses is the state of the CPU classes, which set frequencies and idle states of CPUs.
type CPUClasses struct {
	Classes []CPUClass      `json:"classes,omitempty"`
	Faults  []CPUClassFault `json:"faults,omitempty"`
	// Repairs counts the values that the agent wrote again after another program had changed them. LastRepair
	// describes the last of these repairs.
	Repairs    uint64 `json:"repairs"`
	LastRepair string `json:"lastRepair,omitempty"`
}

// CPUClassCounts has the numbers in CPUClasses, for metrics.
type CPUClassCounts struct {
	WithoutClass int    // number of CPUs that do not have their class, or not their original values if they should have no class
	Repairs      uint64 // number of values that the agent wrote again after another program had changed them
}

// CPUClass is a class and the CPUs that have it.
type CPUClass struct {
	Name string `json:"name"`
	CPUs string `json:"cpus"`
	Idle bool   `json:"idle,omitempty"` // no balloon has these CPUs
}

// CPUClassFault reports CPUs that do not have their class, and why.
type CPUClassFault struct {
	Class  string `json:"class,omitempty"` // "" for CPUs that should have their original values
	CPUs   string `json:"cpus"`
	Reason string `json:"reason"`
}

// Text returns the fault as a sentence.
func (f CPUClassFault) Text() string {
	if f.Class == "" {
		return fmt.Sprintf("CPUs %s do not have their original values: %s", f.CPUs, f.Reason)
	}
	return fmt.Sprintf("CPUs %s do not have the class %s: %s", f.CPUs, f.Class, f.Reason)
}

// ContainerCPUClass is the class of some of a container's CPUs.
type ContainerCPUClass struct {
	CPUs  string `json:"cpus"`
	Class string `json:"class,omitempty"` // "" if these CPUs have no class and keep the kernel's own values
	// BalloonType is the type of the balloon that has the CPUs; "" if no balloon has them.
	BalloonType string `json:"balloonType,omitempty"`
	InForce     bool   `json:"inForce"`
	Kernel      string `json:"kernel,omitempty"` // the values in the kernel files that the class sets
	Reason      string `json:"reason,omitempty"` // why the class is not in force
}

// Text describes the CPUs and their class for users. fault is true if the class should be in force and is not.
func (c ContainerCPUClass) Text() (text string, fault bool) {
	if c.Class == "" {
		return fmt.Sprintf("CPUs %s: none, they keep the kernel's own values", c.CPUs), false
	}
	text = fmt.Sprintf("CPUs %s: %s, of the balloon type %s", c.CPUs, c.Class, c.BalloonType)
	if c.BalloonType == "" {
		text = fmt.Sprintf("CPUs %s: %s, of CPUs that no balloon has", c.CPUs, c.Class)
	}
	if c.InForce {
		return text + "; the kernel shows " + c.Kernel, false
	}
	return text + "; NOT in force: " + c.Reason, true
}
