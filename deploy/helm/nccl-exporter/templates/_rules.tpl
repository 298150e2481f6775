{{- define "nccl-exporter.milliseconds" -}}
{{- $unit := regexFind "[smh]$" . -}}
{{- mul 1000 (int (trimSuffix $unit .)) (get (dict "s" 1 "m" 60 "h" 3600) $unit | int) -}}
{{- end }}

{{- define "nccl-exporter.duration" -}}
{{- $ms := int . -}}
{{- if eq (mod $ms 3600000 | int) 0 -}}
{{ div $ms 3600000 }}h
{{- else if eq (mod $ms 60000 | int) 0 -}}
{{ div $ms 60000 }}m
{{- else if eq (mod $ms 1000 | int) 0 -}}
{{ div $ms 1000 }}s
{{- else -}}
{{ $ms }}ms
{{- end -}}
{{- end }}

{{- /* rules.yml with the values in place of what generate-rules --for-chart leaves. The computed ones are those of generate-rules. */ -}}
{{- define "nccl-exporter.rules" -}}
{{- $values := .Values.prometheusRule -}}
{{- $hang := include "nccl-exporter.milliseconds" $values.hangThreshold | int -}}
{{- $critical := include "nccl-exporter.milliseconds" $values.criticalThreshold | int -}}
{{- $stall := include "nccl-exporter.milliseconds" $values.stallThreshold | int -}}
{{- $parameters := dict
  "hang_threshold" (include "nccl-exporter.duration" $hang)
  "hang_seconds" (div $hang 1000)
  "half_hang_threshold" (include "nccl-exporter.duration" (div $hang 2))
  "quarter_hang_threshold" (include "nccl-exporter.duration" (div $hang 4))
  "abandoned_for" (include "nccl-exporter.duration" (mul 5 $hang))
  "half_hang_evaluations" (max 2 (div $hang 40000))
  "critical_threshold" (include "nccl-exporter.duration" $critical)
  "critical_seconds" (div $critical 1000)
  "stall_threshold" (include "nccl-exporter.duration" $stall)
  "stall_quiet" (include "nccl-exporter.duration" (max 15000 (sub $stall (div $hang 2))))
  "straggler_threshold" $values.stragglerThreshold
  "bandwidth_ratio" $values.bandwidthRatio
  "network_ratio" $values.networkRatio
  "runbooks" ($values.runbooks | default "https://github.com/nccl-exporter/nccl-exporter/blob/main/docs/runbooks" | trimSuffix "/") -}}
{{- $rules := .Files.Get "rules.yml" -}}
{{- range $name, $value := $parameters -}}
{{- $rules = $rules | replace (printf "@%s@" $name) (toString $value) -}}
{{- end -}}
{{- with $values.dashboards -}}
{{- $rules = $rules | replace "# dashboard_url: " (printf "dashboard_url: %s" (trimSuffix "/" .)) -}}
{{- end -}}
{{- /* A label of a job stands in lists, selectors, their arguments, links and the name of the job. */ -}}
{{- range $form := list ", @job_label@=%q" "{{ with $labels.@job_label@ }}&var-@job_label@={{ . | urlquery }}{{ end }}"
    "{{ else if $labels.@job_label@ }}@job_label@ {{ $labels.@job_label@ }}" " $labels.@job_label@" ", @job_label@" -}}
{{- $each := "" -}}
{{- range $values.jobLabels -}}
{{- $each = printf "%s%s" $each ($form | replace "@job_label@" .) -}}
{{- end -}}
{{- $rules = $rules | replace $form $each -}}
{{- end -}}
{{- $labels := "" -}}
{{- range $name, $value := $values.alertLabels -}}
{{- $labels = printf "%s%s: %s, " $labels $name (quote $value) -}}
{{- end -}}
{{- range $name, $severity := $values.severities -}}
{{- $rules = regexReplaceAll (printf "(- alert: %s\n(?:    .*\n)*?    labels: {severity: )\\w+" $name) $rules (printf "${1}%s" $severity) -}}
{{- end -}}
{{- $rules | replace "    labels: {severity: " (printf "    labels: {%sseverity: " $labels) -}}
{{- end }}

{{- /* What the values choose of the thresholds, for the daemon's --findings.config; nothing where they are the shipped ones. */ -}}
{{- define "nccl-exporter.thresholds" -}}
{{- $values := .Values.prometheusRule -}}
{{- $chosen := dict "hang-threshold" $values.hangThreshold "critical-threshold" $values.criticalThreshold "stall-threshold" $values.stallThreshold
  "straggler-threshold" (float64 $values.stragglerThreshold) "bandwidth-ratio" (float64 $values.bandwidthRatio) "network-ratio" (float64 $values.networkRatio) -}}
{{- $shipped := .Files.Get "thresholds.json" | fromJson -}}
{{- $differs := dict -}}
{{- range $name, $value := $chosen -}}
{{- if ne (toString $value) (toString (get $shipped $name)) -}}
{{- $_ := set $differs $name $value -}}
{{- end -}}
{{- end -}}
{{- if $differs -}}
{{- toPrettyJson $differs -}}
{{- end -}}
{{- end }}
