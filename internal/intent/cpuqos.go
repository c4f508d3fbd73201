package intent

import "github.com/trimtab/trimtab/internal/lifecycle"

// CPUQoS is a pod's request for CPU scheduling that differs from the CPU scheduling of its class.
type CPUQoS struct {
	// Malformed reports that the request has an invalid value.
	Malformed bool
	// Enabled is false if the pod requests the group identity 0 instead of the group identity of its class.
	Enabled bool
	// Identity is the group identity, -1 to 2. If Identity is not set, the group identity of the class applies.
	Identity lifecycle.Opt[int]
}

// readCPUQoS reads the annotation KoordCPUQoS, which only a pod of Koordinator's class LS can have.
func readCPUQoS(t *podTexts, out *Pod) {
	text := t.annotation(KoordCPUQoS)
	if text == "" {
		return
	}
	if t.label(KoordQoSClass) != "LS" {
		out.reportWarning(KoordCPUQoS, text, "applies only to pods of class LS")
		return
	}
	var ask struct {
		Enable   bool   `json:"enable"`
		Identity *int64 `json:"groupIdentity"`
		Idle     int64  `json:"schedIdle"`
		Expeller bool   `json:"coreExpeller"`
	}
	q := CPUQoS{Malformed: true}
	if t.decode(KoordCPUQoS, &ask, out) {
		q = CPUQoS{Enabled: ask.Enable}
		if ask.Enable && ask.Idle != 0 {
			out.reportUnserved(KoordCPUQoS, text, "schedIdle is not supported: the class of the pod determines cpu.idle (hooks.groupIdentity.fallback)")
		}
		if ask.Enable && ask.Expeller {
			out.reportUnserved(KoordCPUQoS, text, "coreExpeller is not supported: it needs a kernel of Koordinator's distribution")
		}
		switch {
		case ask.Identity == nil:
		case *ask.Identity < -1 || *ask.Identity > 2:
			out.reportMalformed(KoordCPUQoS, text, "groupIdentity is %d, want -1 to 2", *ask.Identity)
			q.Malformed = true
		default:
			q.Identity = lifecycle.Some(int(*ask.Identity))
		}
	}
	out.CPUQoS = Sourced[CPUQoS]{q, KoordCPUQoS}
}
