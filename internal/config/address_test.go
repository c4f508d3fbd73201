package config

import "testing"

func TestAddress(t *testing.T) {
	for in, ok := range map[string]bool{
		"": true, "127.0.0.1:9464": true, ":9464": true, "[::1]:9464": true, "0.0.0.0:1": true,
		"9464": false, "127.0.0.1": false, "localhost:9464": false, "127.0.0.1:0": false, "127.0.0.1:65536": false,
		"127.0.0.1:http": false, "::1:9464": false, "unix:///x": false,
	} {
		c := Default()
		c.HTTP.Address = in
		p := Validate(c)
		if ok != (p == nil) {
			t.Errorf("http.address %q: %v", in, p)
		}
		if !ok && (len(p) != 1 || p[0].Path != "http.address") {
			t.Errorf("http.address %q is reported as %v", in, p)
		}
	}
}
