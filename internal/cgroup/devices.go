package cgroup

import "strings"

// This file parses and makes the text of cgroup files that have one line for each device.

// ownPart returns the part of a file's text that belongs to the setting. The result has the form in which Handle.Encode
// returns a value.
func (s *Setting) ownPart(v Version, text string) string {
	switch s.Kind {
	case KindDefault:
		line, _, _ := strings.Cut(text, "\n")
		return strings.TrimSpace(strings.TrimPrefix(line, "default "))
	case KindPerDevice:
		return s.deviceLimit(v, text)
	}
	return text
}

// deviceLimit returns the limit of the setting's device from a file's text. A device that is missing in the file, or
// has the number 0 in cgroup version 1, has no limit: "-1" in version 1, "max" in version 2.
func (s *Setting) deviceLimit(v Version, text string) string {
	disk, direction, _ := strings.Cut(s.Key, " ")
	for line := range strings.Lines(text) {
		rest, ours := strings.CutPrefix(strings.TrimSpace(line), disk+" ")
		switch {
		case !ours:
		case v == V1 && rest != "0":
			return rest
		case v == V2:
			for entry := range strings.FieldsSeq(rest) {
				if n, ours := strings.CutPrefix(entry, direction+"="); ours {
					return n
				}
			}
		}
	}
	if v == V1 {
		return "-1"
	}
	return unlimited
}

// textToWrite returns the text to write to the file. After this write, the part of the file that belongs to the setting
// has the text part.
func (s *Setting) textToWrite(v Version, part string) string {
	if s.Kind != KindPerDevice {
		return part
	}
	disk, direction, _ := strings.Cut(s.Key, " ")
	switch {
	case v == V2:
		return disk + " " + direction + "=" + part
	case part == "-1":
		return disk + " 0"
	}
	return disk + " " + part
}
