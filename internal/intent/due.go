package intent

import (
	"fmt"
	"math"
	"strconv"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// PayingResources are the resources that determine how many CPUs a container may own.
type PayingResources struct {
	// Pod are the resources that the kubelet reported for the whole pod, Container those of the container. Each is nil
	// if it is unknown.
	Pod, Container *lifecycle.Resources
	// QoS is the pod's QoS class in Kubernetes. In a Guaranteed pod the request equals the limit, so a limit can
	// replace an unknown request.
	QoS QoS
}

// CheckCPUs returns a *Refusal if a container may not own n CPUs.
func (r Rules) CheckCPUs(namespace string, n int, m PayingResources) error {
	rule := r.For(AssignedCPUs, namespace)
	if why := rule.whyTooMany(namespace, n, m); why != "" {
		return &Refusal{Reason: why, Rule: rule.Name}
	}
	return nil
}

// whyTooMany returns the reason why a container may not own n CPUs; "" if it may.
func (r *Rule) whyTooMany(namespace string, n int, m PayingResources) string {
	switch {
	case r.Decision == Allow:
		return ""
	case r.Decision == Refuse:
		return fmt.Sprintf("%s: pods of namespace %s may not ask for it (authorization: %s)", AssignedCPUs, printable(namespace), r.Name)
	case r.MostCPUs > 0 && n > r.MostCPUs:
		return fmt.Sprintf("%d CPUs are more than the %d that pods of namespace %s may own (authorization: %s)",
			n, r.MostCPUs, printable(namespace), r.Name)
	}
	due, of := CountPaidCPUs(m.Pod, m.QoS), "pod"
	if !due.Known() {
		due, of = CountPaidCPUs(m.Container, m.QoS), "container"
	}
	switch {
	case !due.Known() && hasQuota(m.Pod, m.Container):
		return fmt.Sprintf("the runtime reports a CPU limit and no CPU request; a container may own only as many CPUs as it requests (authorization: %s)", r.Name)
	case !due.Known():
		return fmt.Sprintf("neither the pod nor the container has a CPU limit or request; a pod may own only as many CPUs as it requests (authorization: %s)", r.Name)
	case n > due.CPUs:
		return fmt.Sprintf("%d CPUs are more than the %s's CPU %s (authorization: %s)", n, of, due, r.Name)
	}
	return ""
}

// hasQuota reports whether any of the resources has a CPU limit.
func hasQuota(all ...*lifecycle.Resources) bool {
	for _, r := range all {
		if r != nil && r.CPU.Quota.V > 0 {
			return true
		}
	}
	return false
}

// PaidCPUs is the number of CPUs that a pod or container may own because of its CPU request or limit: the request or
// limit pays for these CPUs.
type PaidCPUs struct {
	CPUs         int    // whole CPUs; a fraction of a CPU does not count
	Milli        int64  // the request or limit in milli-CPUs
	DeterminedBy string // "limit" or "request"; "" if the runtime reported no request
}

// Known reports whether a request or limit determines the number of CPUs. A limit without a request determines the
// number only in a Guaranteed pod.
func (s PaidCPUs) Known() bool { return s.DeterminedBy != "" }

// String describes the request or limit for users, such as "request of 0.5, rounded down to 0".
func (s PaidCPUs) String() string {
	text := s.DeterminedBy + " of " + FormatMilli(s.Milli)
	if s.Milli%milliOfCPU != 0 {
		text += fmt.Sprintf(", rounded down to %d", s.CPUs)
	}
	return text
}

// FormatMilli formats milli-CPUs as CPUs: 1500 becomes 1.5.
func FormatMilli(milli int64) string {
	return strconv.FormatFloat(float64(milli)/milliOfCPU, 'f', -1, 64)
}

// milliOfCPU is the number of milli-CPUs of one CPU.
const milliOfCPU = 1000

// The CPU shares that the kubelet sets. It sets noShares for a container without a CPU request, and maxShares for
// requests of 256 CPUs or more.
const (
	sharesOfCPU = 1024
	noShares    = 2
	maxShares   = 262144
)

// CountPaidCPUs returns how many CPUs a pod or container may own. The number is the CPU request, which the scheduler
// reserved on the node, or the CPU limit if the limit is smaller. It is rounded down to whole CPUs.
//
// A limit without a request does not count, because the author of a pod may choose any limit. A Guaranteed pod is an
// exception, because its request equals its limit: the limit replaces a request that is missing or too large for CPU
// shares.
func CountPaidCPUs(r *lifecycle.Resources, qos QoS) PaidCPUs {
	if r == nil {
		return PaidCPUs{}
	}
	limit := LimitMilli(&r.CPU)
	limited := PaidCPUs{DeterminedBy: "limit", Milli: limit, CPUs: int(min(limit/milliOfCPU, math.MaxInt32))}
	shares := r.CPU.Shares.V
	guaranteed := qos == Guaranteed && limit > 0
	switch {
	case (shares == 0 || shares >= maxShares) && guaranteed:
		return limited
	case shares == 0:
		return PaidCPUs{}
	}
	request := MilliFromShares(shares)
	if limit > 0 && limit <= request {
		return limited
	}
	return PaidCPUs{DeterminedBy: "request", Milli: request, CPUs: int(request / milliOfCPU)}
}

// MilliFromShares returns the CPU request from which the kubelet computed the shares, in milli-CPUs. The result is
// exact, because different requests above 2 milli-CPUs have different shares. For maxShares, the result is the smallest
// request that has these shares.
func MilliFromShares(shares uint64) int64 {
	if shares <= noShares {
		return 0
	}
	return int64((min(shares, maxShares)*milliOfCPU + sharesOfCPU - 1) / sharesOfCPU)
}

// SharesFromMilli returns the shares that the kubelet computes from a CPU request.
func SharesFromMilli(milli int64) uint64 {
	return uint64(max(noShares, min(milli*sharesOfCPU/milliOfCPU, maxShares)))
}

// LimitMilli returns the CPU limit from which the kubelet computed the quota, in milli-CPUs; 0 for no limit. The result
// is exact, because different limits have different quotas.
func LimitMilli(cpu *lifecycle.CPU) int64 {
	quota, period := cpu.Quota.V, int64(defaultPeriod)
	if p := cpu.Period.V; p > 0 && p <= 1e6 { // the kernel's longest period is 1 s
		period = int64(p)
	}
	if quota <= 0 {
		return 0
	}
	whole, part := quota/period, quota%period
	return min(whole, math.MaxInt32)*milliOfCPU + min((part*milliOfCPU+period-1)/period, milliOfCPU-1)
}

// defaultPeriod is the kernel's default CFS period in µs.
const defaultPeriod = 100000
