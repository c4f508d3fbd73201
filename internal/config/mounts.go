package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/hook"
)

// mounts adds an error for each path that pods may mount and that lies below a path to which pods may write. A pod could
// replace such a path, or a directory above it, by a link that leads out of the tree, and the OCI runtime follows links.
func (f *faults) mounts(o hook.MountsOptions) {
	check := func(key string, list []string) {
		for i, path := range list {
			if at := slices.IndexFunc(o.Writable, func(above string) bool { return below(path, above) }); at >= 0 {
				f.add(fmt.Sprintf("hooks.mounts.%s[%d]", key, i), "%s lies below %s of hooks.mounts.writable: a pod that writes there could replace it by a link that leads elsewhere; list one of the two",
					quoteShort(path), quoteShort(o.Writable[at]))
			}
		}
	}
	check("allowed", o.Allowed)
	check("writable", o.Writable)
}

// below reports whether a path lies below another one.
func below(path, above string) bool {
	path, above = filepath.Clean(path), filepath.Clean(above)
	return path != above && strings.HasPrefix(path, strings.TrimSuffix(above, "/")+"/")
}
