-- The days of a stay on which an antibiotic was prescribed by a systemic route, first and last day included.
-- Prescriptions carry dates and no times.
SELECT DISTINCT icustay_id, unnest(generate_series(
    greatest(prescriptions.first_day, stays.first_day), least(prescriptions.last_day, stays.last_day), INTERVAL 1 DAY
))::DATE AS day
FROM prescriptions
JOIN stays USING (subject_id)
WHERE systemic
  AND prescriptions.first_day <= prescriptions.last_day
  AND prescriptions.first_day <= stays.last_day AND prescriptions.last_day >= stays.first_day
