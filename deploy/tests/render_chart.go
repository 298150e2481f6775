// SPDX-License-Identifier: Apache-2.0

// Usage: render_chart CHART <INPUT: prints what the templates of the chart make of the values in INPUT, a JSON object with Values, Release and Chart.
// Helm's own engine is Go's text/template; of the functions that Helm adds these are the ones that the chart calls. What toYaml prints is the same YAML in
// another style: compare objects, not texts.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

type files struct{ chart string }

func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	check(err)
	return string(text)
}

func (f files) Glob(pattern string) map[string]string {
	found := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(f.chart, pattern))
	check(err)
	for _, name := range paths {
		relative, err := filepath.Rel(f.chart, name)
		check(err)
		found[relative] = f.Get(relative)
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	check(err)
	return string(text)
}

// An item or a pair a line, with JSON inside, which is YAML too.
func toYAML(value any) string {
	var lines []string
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			lines = append(lines, "- "+toJSON(item))
		}
	case map[string]any:
		for key, item := range value {
			lines = append(lines, toJSON(key)+": "+toJSON(item))
		}
	}
	if len(lines) == 0 {
		return toJSON(value)
	}
	return strings.Join(lines, "\n")
}

func indent(spaces int, text string) string {
	margin := strings.Repeat(" ", spaces)
	return margin + strings.ReplaceAll(text, "\n", "\n"+margin)
}

func orDefault(fallback, value any) any {
	if truth, _ := template.IsTrue(value); truth {
		return value
	}
	return fallback
}

var functions = template.FuncMap{
	"base":       path.Base,
	"default":    orDefault,
	"indent":     indent,
	"nindent":    func(spaces int, text string) string { return "\n" + indent(spaces, text) },
	"replace":    func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
	"quote":      func(value any) string { return toJSON(fmt.Sprint(value)) },
	"toJson":     toJSON,
	"toYaml":     toYAML,
	"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
}

func main() {
	chart := os.Args[1]
	var input map[string]any
	check(json.NewDecoder(os.Stdin).Decode(&input))
	input["Files"] = files{chart}
	paths, err := filepath.Glob(filepath.Join(chart, "templates/*"))
	check(err)
	for _, name := range paths {
		text, err := os.ReadFile(name)
		check(err)
		parsed, err := template.New(name).Option("missingkey=zero").Funcs(functions).Parse(string(text))
		check(err)
		var output strings.Builder
		check(parsed.Execute(&output, input))
		if filepath.Ext(name) == ".yaml" {
			fmt.Printf("---\n%s\n", output.String())
		}
	}
}
