package intent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// NetDevice is a network interface of the host, and its name in the container.
type NetDevice struct{ Host, Name string }

// RequestsInterfaces reports whether the pod requests network interfaces of the host.
func (p *Pod) RequestsInterfaces() bool { return p.NetDevices.IsSet() || p.PodInterfaces.IsSet() }

// InterfacesOf returns the requests for network interfaces that apply to a container: first its own
// request, then the request of the pod.
func (p *Pod) InterfacesOf(container string) (all []Sourced[[]NetDevice]) {
	for _, asked := range []Sourced[[]NetDevice]{p.NetDevices.V.Of(container), p.PodInterfaces} {
		if asked.IsSet() {
			all = append(all, asked)
		}
	}
	return all
}

// netDevices reads network interfaces of the host. An interface without a new name keeps its
// name.
func (t *podTexts) netDevices(key string) ([]NetDevice, error) {
	var list []struct {
		Host string `json:"hostIf"`
		Name string `json:"name"`
	}
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	return checkedInterfaces(len(list), func(i int) NetDevice { return NetDevice{Host: list[i].Host, Name: list[i].Name} })
}

// podInterfaces reads network interfaces of the host that move into the pod. It accepts the members address, prefix and
// mtu, but the agent ignores them, like NRI's plugin network-device-injector.
func (t *podTexts) podInterfaces(key string) ([]NetDevice, error) {
	var list []struct {
		Host    string `json:"name"`
		Name    string `json:"new_name"`
		Address string `json:"address"`
		Prefix  int    `json:"prefix"`
		MTU     int    `json:"mtu"`
	}
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	return checkedInterfaces(len(list), func(i int) NetDevice { return NetDevice{Host: list[i].Host, Name: list[i].Name} })
}

// checkedInterfaces checks a list of n interfaces, and returns the interfaces with their names in the container. It
// returns an error if the list is malformed. The function at returns the interface with the index i of the list.
func checkedInterfaces(n int, at func(i int) NetDevice) ([]NetDevice, error) {
	if n > maxInjected {
		return nil, fmt.Errorf("has more than %d interfaces", maxInjected)
	}
	var out []NetDevice
	for i := range n {
		d := at(i)
		if d.Name == "" {
			d.Name = d.Host
		}
		switch {
		case !isInterfaceName(d.Host) || !isInterfaceName(d.Name):
			return nil, fmt.Errorf("%q or %q is not the name of a network interface", printable(d.Host), printable(d.Name))
		case d.Host == "lo" || d.Name == "lo":
			return nil, errors.New("lo cannot be moved, because every network namespace has its own lo")
		case slices.ContainsFunc(out, func(o NetDevice) bool { return o.Host == d.Host || o.Name == d.Name }):
			return nil, fmt.Errorf("%s or %s is listed twice", d.Host, d.Name)
		}
		out = append(out, d)
	}
	return out, nil
}

// isInterfaceName reports whether a text can name a network interface. It accepts fewer characters than the kernel
// (Linux, net/core/dev.c, dev_valid_name). It refuses a "-" at the start, because in NRI such a name means a removal.
func isInterfaceName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." && s[0] != '-' && strings.Trim(s, asciiAlphanumerics+"-_.") == ""
}
