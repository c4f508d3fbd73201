package intent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DeviceRequest is a container's request for exclusive CDI devices of one kind: a number of devices, or their names.
type DeviceRequest struct {
	Kind   string // vendor/class
	Number int
	Names  []string // qualified names; if set, Number is 0
}

// String describes the request for users.
func (r DeviceRequest) String() string {
	if len(r.Names) > 0 {
		return strings.Join(r.Names, " ")
	}
	return fmt.Sprintf("%d of %s", r.Number, r.Kind)
}

// deviceAmount is a number of devices, the name of a device, or a list of names. A JSON string is always a
// name, so "2" is the device with that name, and 2 means two devices.
type deviceAmount struct {
	number int
	names  []string
}

// UnmarshalJSON reads a number, a name or a list of names.
func (a *deviceAmount) UnmarshalJSON(b []byte) error {
	var name string
	switch {
	case json.Unmarshal(b, &a.number) == nil && string(b) != "null":
		if a.number < 1 || a.number > maxInjected {
			return fmt.Errorf("%d is not a number of devices from 1 to %d", a.number, maxInjected)
		}
		return nil
	case json.Unmarshal(b, &name) == nil && string(b) != "null":
		a.names = []string{name}
	case json.Unmarshal(b, &a.names) != nil || len(a.names) == 0:
		return errors.New("want a number of devices, a name in quotes, or a list of names")
	}
	return nil
}

// readExclusiveDevices reads the exclusive devices that containers request by kind.
func readExclusiveDevices(t *podTexts, out *Pod) {
	var asked map[string]map[string]deviceAmount
	if !t.decode(TrimtabCDIDevices, &asked, out) || len(asked) == 0 {
		return
	}
	all := PerContainer[[]DeviceRequest]{ByContainer: map[string]Sourced[[]DeviceRequest]{}}
	for _, container := range sortedKeys(asked) {
		requests, err := deviceRequests(asked[container])
		if err != nil {
			out.reportMalformed(TrimtabCDIDevices, t.annotation(TrimtabCDIDevices), "container %s: %v", printable(container), err)
			continue
		}
		if len(requests) > 0 {
			all.ByContainer[container] = Sourced[[]DeviceRequest]{requests, TrimtabCDIDevices}
		}
	}
	if len(all.ByContainer) > 0 {
		out.ExclusiveDevices = Sourced[PerContainer[[]DeviceRequest]]{all, TrimtabCDIDevices}
	}
}

// deviceRequests converts the requests of one container, or returns what is wrong with them.
func deviceRequests(asked map[string]deviceAmount) (out []DeviceRequest, err error) {
	total := 0
	for _, kind := range sortedKeys(asked) {
		vendor, class, _ := strings.Cut(kind, "/")
		if !isCDIWord(vendor, ".") || !isCDIWord(class, ".") {
			return nil, fmt.Errorf("%q is not a kind of CDI devices, such as vendor.com/class", printable(kind))
		}
		r := DeviceRequest{Kind: kind, Number: asked[kind].number}
		for _, name := range asked[kind].names {
			if !isCDIWord(name, ".:") {
				return nil, fmt.Errorf("%q is not the name of a device of the kind %s", printable(name), kind)
			}
			if slices.Contains(r.Names, kind+"="+name) {
				return nil, fmt.Errorf("%s=%s is listed twice", kind, name)
			}
			r.Names = append(r.Names, kind+"="+name)
		}
		if total += r.Number + len(r.Names); total > maxInjected {
			return nil, fmt.Errorf("requests more than %d devices", maxInjected)
		}
		out = append(out, r)
	}
	return out, nil
}
