// Package dra reads which CPUs resource claims give to containers. It reads two kinds of files. The node's CDI
// specifications have the CPUs that a DRA driver for CPUs gave to a claim. The checkpoint of the kubelet's dynamic
// resource allocation (DRA) has the pods that use the claim.
//
// A driver such as dra-driver-cpu makes one CDI device for each claim. The device adds a variable with the claim's CPUs
// to the containers of the claim. The package reads the variable from the specification, never from a container,
// because the author of a pod can set any variable.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/topology"
)

const (
	// devicePrefix begins the name of a claim's CDI device. variablePrefix begins the name of the variable that this
	// device adds. The claim's UID follows each prefix.
	devicePrefix   = "dra.k8s.io/cpu=claim-"
	variablePrefix = "DRA_CPUSET_"
	// noExclusiveCPUs is the variable's value if the claim has no exclusive CPUs.
	noExclusiveCPUs = "dynamic"
	// maxUID is the largest length of a claim's UID, in bytes. maxProblems is the largest number of problems that a
	// container gets.
	maxUID, maxProblems = 64, 8
	// problemKey is the value of Problem.Key in the problems of this package: the configuration key authority.
	problemKey = "authority"
)

// Options say where a Source reads the claims.
type Options struct {
	// Devices reads the node's CDI specifications. It returns the variables of each device by its
	// qualified name, and the faults of the files.
	Devices func() (variables map[string][]string, faults []string)
	// Checkpoint is the path of the checkpoint of the kubelet's DRA manager; "" for none. Read returns the content of
	// this file. If Read is nil, the Source reads the file from the node's disk.
	Checkpoint string
	Read       func(path string) ([]byte, error)
	Log        *slog.Logger // nil for none
}

// Source has the claims that give CPUs to containers. Refresh reads the files. ForContainer does no I/O.
type Source struct {
	options Options

	readMu sync.Mutex // held while read reads the files, so that the result of an older read does not replace a newer one

	mu sync.Mutex // guards the fields below, except checkpoint, which has its own lock
	// devices has the variables of claims' CDI devices, by the name of the device. faults are the faults of the CDI
	// specifications at the last read.
	devices map[string][]string
	faults  []string
	// claims has the claims of the checkpoint, by the UID of the claim. It is nil if the checkpoint is missing or not
	// valid. checkpointErr is the reason why the checkpoint is not valid.
	claims        map[string]claim
	checkpointErr error
	// checkpoint has the content of the checkpoint file at the last read. classDevices has, by pod UID, the CDI devices
	// that select a class, pool or balloon type. podsWithCPUClaims has the UIDs of the pods with claims for CPUs.
	// classDevices and podsWithCPUClaims are from the last valid checkpoint.
	checkpoint        checkpoint
	classDevices      map[string][]lifecycle.ClaimedDevice
	podsWithCPUClaims map[string]bool
}

// New makes a source. It has no claims until Refresh or ReadCheckpoint reads the files.
func New(o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Read == nil {
		o.Read = readFile
	}
	return &Source{options: o}
}

// MayGiveCPUs reports whether a container's request has the CDI device or a variable of a claim for CPUs. The result
// may be true without such a claim, because the author of a pod can forge the variable.
func (*Source) MayGiveCPUs(ctr *lifecycle.Container) bool {
	return slices.ContainsFunc(ctr.CDIDevices, isClaimDevice) || slices.ContainsFunc(ctr.Env, isClaimVariable)
}

// isClaimDevice reports whether a CDI device has the name of a device of a claim for CPUs.
func isClaimDevice(name string) bool { return strings.HasPrefix(name, devicePrefix) }

// isClaimVariable reports whether a variable has the name that the device of a claim for CPUs adds.
func isClaimVariable(env string) bool { return strings.HasPrefix(env, variablePrefix) }

const (
	// rereadPause is the pause of Refresh after a read that did not find all devices. A driver that writes its
	// specification in place needs a moment to write the whole file.
	rereadPause = 20 * time.Millisecond
	// maxReads is the largest number of reads in one call of Refresh.
	maxReads = 10
)

// Refresh reads the files. If the specifications lack one of the devices, Refresh reads them again for up to a fifth of
// a second, or until ctx ends.
func (s *Source) Refresh(ctx context.Context, devices []string) {
	names := slices.DeleteFunc(slices.Clone(devices), func(name string) bool { return !isClaimDevice(name) })
	for range maxReads {
		if s.read(names) || !sleep.For(ctx, rereadPause) {
			return
		}
	}
}

// read reads the files once, and reports whether it found all devices in names. If an earlier read found a device in
// names, but this read does not, the device keeps its variables.
func (s *Source) read(names []string) (found bool) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	all, faults := s.options.Devices()
	s.ReadCheckpoint()
	s.mu.Lock()
	defer s.mu.Unlock()
	devices := make(map[string][]string, len(names))
	for name, variables := range all {
		if isClaimDevice(name) {
			devices[name] = variables
		}
	}
	found = true
	for _, name := range names {
		if _, is := devices[name]; !is {
			found = false
			if before, known := s.devices[name]; known {
				devices[name] = before
			}
		}
	}
	s.devices, s.faults = devices, faults
	return found
}

// ForContainer returns the claims that give CPUs to a container; nil for none. If podUID is "", ForContainer does not
// check whether the pod may use the claims.
func (s *Source) ForContainer(podUID string, ctr *lifecycle.Container) *lifecycle.ClaimGrant {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &lifecycle.ClaimGrant{}
	uids := map[string]bool{}
	for _, name := range ctr.CDIDevices {
		uid, is := strings.CutPrefix(name, devicePrefix)
		if !is || uids[uid] {
			continue
		}
		uids[uid] = true
		c := lifecycle.Claim{UID: uid, Device: name, Name: s.claims[uid].name()}
		var err error
		if err = s.checkAllowed(podUID, uid); err == nil {
			c.CPUs, err = s.cpus(name, uid)
		}
		if err != nil {
			g.Problems = append(g.Problems, lifecycle.Problem{
				Key: problemKey, Value: printable(name), Reason: err.Error(), Refused: true, Then: "the container gets no CPUs from its claims and runs in a shared pool",
			})
		}
		g.Claims = append(g.Claims, c)
	}
	if len(g.Claims) > 0 && s.checkpointErr != nil {
		g.Problems = append(g.Problems, lifecycle.Problem{
			Key: problemKey, Value: s.options.Checkpoint, Warning: true, Reason: "the checkpoint of the kubelet's DRA manager is not valid: " + s.checkpointErr.Error(),
			Then: "the agent does not check whether the claims of the container belong to its pod",
		})
	}
	for _, name := range forgedVariables(ctr.Env, uids) {
		g.Problems = append(g.Problems, lifecycle.Problem{
			Key: problemKey, Value: printable(name), Warning: true,
			Reason: "the container has this variable without the CDI device of the claim", Then: "the variable gives the container no CPUs",
		})
	}
	if len(g.Claims)+len(g.Problems) == 0 {
		return nil
	}
	if len(g.Problems) > maxProblems {
		g.Problems = g.Problems[:maxProblems]
	}
	return g
}

// forgedVariables returns the names of variables in env that belong to a claim whose CDI device the container lacks.
// claimUIDs has the UIDs of the claims whose devices the container has.
func forgedVariables(env []string, claimUIDs map[string]bool) (names []string) {
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if uid, is := strings.CutPrefix(name, variablePrefix); is && !claimUIDs[uid] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkAllowed returns the reason why a pod may not have the CPUs of the claim with the UID uid. It returns nil if the
// pod may have these CPUs, or if there is no valid checkpoint.
func (s *Source) checkAllowed(podUID, uid string) error {
	if !validUID(uid) {
		return errors.New("the name of the CDI device has no valid claim UID")
	}
	if s.claims == nil || podUID == "" {
		return nil
	}
	switch c, known := s.claims[uid]; {
	case !known:
		return errors.New("the checkpoint of the kubelet's DRA manager has no such claim")
	case !c.PodUIDs[podUID]:
		return fmt.Errorf("the kubelet's DRA manager gave claim %s only to other pods", printable(c.name()))
	}
	return nil
}

// cpus returns the CPUs that a CDI device gives to the containers of a claim. The parameter uid is the UID of the
// claim. cpus returns nil if the claim has no exclusive CPUs.
func (s *Source) cpus(device, uid string) ([]int, error) {
	variables, known := s.devices[device]
	if !known {
		why := ""
		if len(s.faults) > 0 {
			why = ": " + s.faults[0]
		}
		return nil, errors.New("no CDI specification of the node has this device" + why)
	}
	for _, v := range variables {
		list, is := strings.CutPrefix(v, variablePrefix+uid+"=")
		if !is {
			continue
		}
		if list == noExclusiveCPUs {
			return nil, nil
		}
		cpus, err := topology.ParseList(list)
		if err == nil && len(cpus) == 0 {
			err = errors.New("the list is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("the device's list of CPUs is not valid: %w", err)
		}
		slices.Sort(cpus)
		return slices.Compact(cpus), nil
	}
	return nil, fmt.Errorf("the device has no variable %s%s", variablePrefix, uid)
}

// validUID reports whether a text has 1 to maxUID characters, which are letters, digits and -.
func validUID(uid string) bool {
	other := func(r rune) bool { return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-' }
	return uid != "" && len(uid) <= maxUID && !strings.ContainsFunc(uid, other)
}

// printable returns an untrusted text in a form that is safe to print: shortened, and without control characters.
func printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s), "?")
}
