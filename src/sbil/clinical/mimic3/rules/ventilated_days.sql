-- The days of a stay on which the patient was ventilated: a ventilator setting was charted on that day, or a spell of
-- invasive ventilation touches it. What lies outside the stay does not count.
SELECT DISTINCT icustay_id, charttime::DATE AS day
FROM chartevents
JOIN ventilation USING (itemid)
JOIN stays USING (subject_id)
WHERE ventilation.events = 'chartevents' AND filled AND NOT wrong
  AND charttime >= intime AND charttime < outtime
  AND (only_if = '' OR lower(text) = lower(only_if))
  AND (not_if = '' OR text IS NULL OR lower(text) <> lower(not_if))
UNION
SELECT DISTINCT icustay_id, unnest(generate_series(
    greatest(started, intime)::DATE, (least(ended, outtime) - INTERVAL 1 MICROSECOND)::DATE, INTERVAL 1 DAY
))::DATE AS day
FROM procedureevents_mv
JOIN stays USING (subject_id)
WHERE started < outtime AND ended > intime AND ended > started
