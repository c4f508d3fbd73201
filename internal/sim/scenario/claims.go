package scenario

import (
	"cmp"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
)

// Claim is a resource claim that a driver for dynamic resource allocation has prepared.
type Claim struct {
	UID  string `json:"uid"`            // the UID of the claim
	Name string `json:"name,omitempty"` // namespace/name; a claim without a name is not in the kubelet's checkpoint
	CPUs string `json:"cpus,omitempty"` // the claimed CPUs, if the claim is for CPUs
	// Device is the qualified name of the claim's CDI device; "" if the claim is for CPUs.
	Device string `json:"device,omitempty"`
	Pods   []Ref  `json:"pods,omitempty"` // the pods that use the claim
}

// cdiDeviceName returns the qualified name of the claim's CDI device, also for a claim for CPUs.
func (c *Claim) cdiDeviceName() string { return cmp.Or(c.Device, ClaimKind+"=claim-"+c.UID) }

// ClaimKind is the kind of the CDI devices of claims for CPUs.
const ClaimKind = "dra.k8s.io/cpu"

// cdiDevice is a device of a CDI specification.
type cdiDevice struct {
	Name  string `json:"name"`
	Edits struct {
		Env []string `json:"env"`
	} `json:"containerEdits"`
}

// devicesOf returns the CDI devices of claims, by CDI kind.
func devicesOf(claims []Claim) map[string][]cdiDevice {
	out := map[string][]cdiDevice{ClaimKind: {}}
	for _, c := range claims {
		kind, name, _ := strings.Cut(c.cdiDeviceName(), "=")
		d := cdiDevice{Name: name}
		d.Edits.Env = []string{"DRA_CPUSET_" + c.UID + "=" + c.CPUs}
		if !slices.ContainsFunc(out[kind], func(other cdiDevice) bool { return other.Name == name }) {
			out[kind] = append(out[kind], d)
		}
	}
	return out
}

// ClaimVariables returns the environment variables of the claims' CDI devices, by the qualified names of the devices.
func ClaimVariables(claims []Claim) map[string][]string {
	out := map[string][]string{}
	for kind, all := range devicesOf(claims) {
		for _, d := range all {
			out[kind+"="+d.Name] = d.Edits.Env
		}
	}
	return out
}

// ClaimSpecs returns the texts of the CDI specifications of claims, by file name.
func ClaimSpecs(claims []Claim) map[string][]byte {
	out := map[string][]byte{}
	for kind, all := range devicesOf(claims) {
		text, _ := json.Marshal(map[string]any{"cdiVersion": "0.8.0", "kind": kind, "devices": all}) // no error: the value has only strings
		out[strings.ReplaceAll(kind, "/", "-")+".json"] = text
	}
	return out
}

// ClaimCheckpoint returns the text of the kubelet's checkpoint of claims. uid returns the UID of a pod.
func ClaimCheckpoint(claims []Claim, uid func(Ref) string) []byte {
	type prepared struct{ CDIDeviceIDs []string }
	type driver struct{ Devices []prepared }
	type state struct {
		ClaimUID, ClaimName, Namespace string
		PodUIDs                        map[string]struct{}
		DriverState                    map[string]driver
	}
	list := []state{}
	for _, c := range claims {
		namespace, name, named := strings.Cut(c.Name, "/")
		if !named {
			continue
		}
		s := state{
			ClaimUID: c.UID, ClaimName: name, Namespace: namespace, PodUIDs: map[string]struct{}{},
			DriverState: map[string]driver{"driver.example": {[]prepared{{[]string{c.cdiDeviceName()}}}}},
		}
		for _, ref := range c.Pods {
			s.PodUIDs[uid(ref)] = struct{}{}
		}
		list = append(list, s)
	}
	data, _ := json.Marshal(map[string]any{"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": list})
	text, _ := json.Marshal(map[string]any{"Data": string(data), "Checksum": crc32.ChecksumIEEE(data)})
	return text
}

// HasCPUClaims reports whether the scenario has a resource claim for CPUs.
func (s *Scenario) HasCPUClaims() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return step.Claims != nil && slices.ContainsFunc(*step.Claims, func(c Claim) bool { return c.Device == "" })
	})
}

// HasAnyClaims reports whether a step of the scenario sets resource claims of any kind.
func (s *Scenario) HasAnyClaims() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Claims != nil })
}
