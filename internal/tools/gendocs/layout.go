package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns is the maximum width of a line.
const columns = 120

// blockMark matches a word that would start a list, heading or quotation if it were the first word of a Markdown line.
var blockMark = regexp.MustCompile(`^([-+*#>]+|[0-9]+[.)])$`)

// wrap breaks a text into lines of at most columns characters. The first line begins with firstPrefix, all other lines
// begin with nextPrefix. A code span stays on one line.
func wrap(firstPrefix, nextPrefix, text string) string {
	var b strings.Builder
	line, empty := firstPrefix, true
	for _, word := range words(text) {
		fits := utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns
		switch {
		case empty:
			line += word
		case fits:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = nextPrefix + word
		}
		empty = false
	}
	b.WriteString(line + "\n")
	return b.String()
}

// words splits a text at its spaces, except in code spans and before a word that matches blockMark.
func words(text string) []string {
	var list []string
	for _, part := range strings.Fields(text) {
		if last := len(list) - 1; last >= 0 && (strings.Count(list[last], "`")%2 == 1 || blockMark.MatchString(part)) {
			list[last] += " " + part
			continue
		}
		list = append(list, part)
	}
	return list
}

// listItem formats an entry of a list.
func listItem(text string) string { return wrap("* ", "  ", text) }

// paragraph formats text between blank lines.
func paragraph(text string) string { return wrap("", "", text) }

// joinNonEmpty joins the texts that are not empty.
func joinNonEmpty(separator string, list ...string) string {
	var some []string
	for _, s := range list {
		if s != "" {
			some = append(some, s)
		}
	}
	return strings.Join(some, separator)
}

// withLabel returns the name and the value with a space between them; "" if the value is "".
func withLabel(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

// addFullStop adds a full stop to a text that does not end with one.
func addFullStop(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// blockStart matches the beginning of a block that is not a paragraph.
var blockStart = regexp.MustCompile("^(\\* |\\||#|<|```|$)")

// reflowed returns a function that makes a page and wraps its paragraphs. The function does not change lists, tables,
// headings and code.
func reflowed(makePage func() (string, error)) func() (string, error) {
	return func() (string, error) {
		page, err := makePage()
		if err != nil {
			return "", err
		}
		blocks := strings.Split(page, "\n\n")
		inCode := false
		for i, block := range blocks {
			if !inCode && !blockStart.MatchString(block) {
				blocks[i] = strings.TrimSuffix(paragraph(block), "\n")
			}
			if strings.Count(block, "```")%2 == 1 {
				inCode = !inCode
			}
		}
		return strings.TrimRight(strings.Join(blocks, "\n\n"), "\n") + "\n", nil
	}
}
